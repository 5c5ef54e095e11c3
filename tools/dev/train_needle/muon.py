"""The optimiser's two rules: Muon (orthogonalised momentum) for matrices, Adam for the rest."""
import torch


def orthogonalised(matrix, n_iterations=5):
    """Roughly the nearest matrix with singular values 1, by the Newton-Schulz iteration that Muon uses."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.t() if tall else matrix) / (matrix.norm() + 1e-7)
    x = x.bfloat16()
    for _ in range(n_iterations):
        square = x @ x.t()
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.t() if tall else x).float()


@torch.no_grad()
def muon_step(parameter, gradient, momentum, blocks, lr, decay=0.02):
    """blocks: sizes of the row blocks that are matrices of their own (queries, keys and values lie in one parameter)."""
    momentum.mul_(0.95).add_(gradient, alpha=0.05)
    update = 0.05 * gradient + 0.95 * momentum
    for block, u in zip(parameter.split(blocks), update.split(blocks)):
        scale = max(1.0, block.shape[0] / block.shape[1]) ** 0.5
        block.mul_(1 - lr * decay).add_(orthogonalised(u), alpha=-lr * scale)


@torch.no_grad()
def adam_step(parameter, gradient, mean, square, step, lr):
    """step counts from 1."""
    mean.mul_(0.9).add_(gradient, alpha=0.1)
    square.mul_(0.98).addcmul_(gradient, gradient, value=0.02)
    parameter.addcdiv_(mean / (1 - 0.9 ** step), (square / (1 - 0.98 ** step)).sqrt_().add_(1e-9), value=-lr)
