"""Hosts on one machine, for tests of what crosses a network: each has its own network, name, disk, shared memory and limits.

A host is a set of Linux namespaces (network, name, mounts, processes, System V memory) with a first process that keeps it. All hosts hang on one bridge,
10.77.0.0/24 and fd77::/64, by links whose bandwidth can be set, that can be cut and filtered. Two traps that clusters set are there too:
every host has an interface "docker0" with the same address 172.17.0.1, of no use between hosts, and its own name is 127.0.1.1, as
Debian writes it.

What a host has of its own lies under DISK, a memory disk of a given size: the same path on every host, other contents.
Needs root, iproute2 and nftables; `why_not()` says what is missing.
"""
import glob
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

DISK = "/mnt"
# What lies about the time to the programs that load it; not everywhere.
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
AGENT = pathlib.Path(__file__).with_name("launch_agent.py")


def why_not():
    """Why there can be no hosts here, or None."""
    if os.geteuid() != 0:
        return "hosts of one's own need root"
    for tool in ("ip", "tc", "nft", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (iproute2, nftables, util-linux)"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "--ipc", "sh", "-c",
                            f"mount -t tmpfs tmpfs {DISK} && ip link add b0 type bridge && nft add table inet t"],
                           capture_output=True, text=True)
    return None if tried.returncode == 0 else "namespaces are not allowed here: " + tried.stderr.strip()


def sh(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Network:
    """A network namespace that lives as long as a process that sleeps in it: the switch between the hosts."""

    kinds = ["--net"]

    def __init__(self):
        self.keeper = subprocess.Popen(["unshare", *self.kinds, "sh", "-c", "echo in; exec sleep infinity"],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True)
        if self.keeper.stdout.readline() != "in\n":
            raise RuntimeError("unshare made no namespace")
        self.pid = self.keeper.pid

    def words(self, *command):
        """What runs `command` in there."""
        return ["nsenter", "-t", str(self.pid), *self.kinds, *command]

    def do(self, *command):
        sh(*self.words(*command))

    def end(self):
        self.keeper.kill()
        self.keeper.wait()
        self.keeper.stdout.close()


# The first process of a host: takes over what others leave behind, as init does.
INIT = """
import os, time
print("in", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.05)
"""


class Host(Network):
    kinds = ["--net", "--uts", "--mount", "--ipc", "--pid"]

    def __init__(self, name, number, disk, memory):
        self.keeper = subprocess.Popen(["unshare", *self.kinds, "--fork", "--kill-child", "--mount-proc", "--propagation=private",
                                        sys.executable, "-c", INIT],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True)
        if self.keeper.stdout.readline() != "in\n":
            raise RuntimeError("unshare made no namespaces")
        self.pid = int(pathlib.Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children").read_text())
        self.name, self.number, self.memory = name, number, memory
        self.address, self.address6 = f"10.77.0.{number}", f"fd77::{number}"
        self.do("hostname", name)
        self.do("mount", "-t", "tmpfs", "-o", f"size={disk}", "tmpfs", DISK)
        self.do("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        self.do("mkdir", f"{DISK}/tmp")
        self.do("ip", "link", "set", "lo", "up")
        self.do("ip", "link", "add", "docker0", "type", "veth", "peer", "name", "container")
        self.do("ip", "addr", "add", "172.17.0.1/16", "dev", "docker0")
        self.do("ip", "link", "set", "docker0", "up")
        self.do("ip", "link", "set", "container", "up")

    def put(self, source, name):
        """A copy of a file or folder on this host's disk; its path there."""
        self.do("cp", "-r", str(source), f"{DISK}/{name}")
        return f"{DISK}/{name}"

    def read(self, name):
        """A file of this host's disk; None where there is none."""
        done = subprocess.run(self.words("cat", f"{DISK}/{name}"), capture_output=True)
        return done.stdout if done.returncode == 0 else None

    def names(self, pattern):
        """Names of the files of this host's disk that a pattern of the shell's fits."""
        done = subprocess.run(self.words("sh", "-c", f"cd {DISK} && ls -d {pattern}"), capture_output=True, text=True)
        return done.stdout.split()

    def write(self, name, text):
        """A file on this host's disk."""
        subprocess.run(self.words("tee", f"{DISK}/{name}"), input=text, text=True, stdout=subprocess.DEVNULL, check=True)

    def has(self, path):
        return subprocess.run(self.words("test", "-e", path)).returncode == 0

    def runs(self, words):
        """Whether a process there has these words in its command."""
        return subprocess.run(self.words("pgrep", "-f", words), stdout=subprocess.DEVNULL).returncode == 0

    def environment(self):
        return {**os.environ, "TMPDIR": f"{DISK}/tmp", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def start(self, command, **options):
        """Starts a command there; a Popen."""
        limit = [] if self.memory is None else ["prlimit", f"--as={self.memory}"]
        return subprocess.Popen(self.words(*limit, *command), cwd="/", env=self.environment(), text=True, start_new_session=True, **options)

    def run(self, command, timeout=300):
        """Runs a command there to its end: (status, standard output, standard error). Status is None where it did not end in time."""
        process = self.start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=timeout)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and not the host's daemons
        try:
            out, err = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:  # something that it started keeps its output open
            self.end_all()
            out, err = process.communicate()
        return None, out, err

    def end_all(self):
        """Every process there but the first."""
        subprocess.run(self.words("kill", "-9", "-1"), stderr=subprocess.DEVNULL)

    def power_off(self):
        """Everything on the host is gone at once, its network too."""
        os.kill(self.pid, signal.SIGKILL)
        self.keeper.wait()

    def rate(self, mbit):
        """Bandwidth of this host's link, out of the host (the bridge's side is set by Hosts)."""
        self.do("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms")

    def no_rate(self):
        self.do("tc", "qdisc", "del", "dev", "eth0", "root")

    def can_delay(self):
        """Whether the kernel has netem."""
        words = self.words("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "0ms")
        if subprocess.run(words, capture_output=True).returncode != 0:
            return False
        self.do("tc", "qdisc", "del", "dev", "lo", "root")
        return True

    def delay(self, milliseconds, percent_lost):
        """What leaves the host comes later, or never, until `no_rate`."""
        self.do("tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "delay", f"{milliseconds}ms", "loss", f"{percent_lost}%")

    def firewall(self, *sources):
        """From now on drops whatever comes from these hosts, without a word."""
        self.do("nft", "add", "table", "inet", "drops")
        self.do("nft", "add", "chain", "inet", "drops", "in", "{ type filter hook input priority 0; }")
        for source in sources:
            self.do("nft", "add", "rule", "inet", "drops", "in", "ip", "saddr", source.address, "drop")
            self.do("nft", "add", "rule", "inet", "drops", "in", "ip6", "saddr", source.address6, "drop")

    def no_firewall(self):
        self.do("nft", "delete", "table", "inet", "drops")


class Hosts:
    """`with Hosts(3) as hosts:` hosts[0] to hosts[2], named node1 to node3, of which node1 is where jobs are started.

    disk: size of each host's disk, as mount understands it ("512m"). memory: address space of processes on each host in bytes, or None.
    """

    def __init__(self, n, disk="512m", memory=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="longhaul-hosts-"))
        self.switch = Network()
        self.switch.do("ip", "link", "add", "bridge", "type", "bridge")
        self.switch.do("ip", "link", "set", "bridge", "up")
        self.hosts, self.agents = [], None
        try:
            for i in range(n):
                self._add(Host(f"node{i + 1}", i + 1, disk, memory[i] if memory else None))
            self._write_names()
            self._answer_agents()
        except BaseException:
            self.__exit__()
            raise

    def _add(self, host):
        self.hosts.append(host)
        inside, outside = f"in{host.pid}", f"out{host.pid}"  # for a moment beside those of other tests
        sh("ip", "link", "add", inside, "type", "veth", "peer", "name", outside)
        sh("ip", "link", "set", outside, "netns", str(self.switch.pid))
        sh("ip", "link", "set", inside, "netns", str(host.pid), "name", "eth0")
        self.switch.do("ip", "link", "set", outside, "master", "bridge", "up")
        host.do("ip", "addr", "add", f"{host.address}/24", "dev", "eth0")
        host.do("ip", "-6", "addr", "add", f"{host.address6}/64", "dev", "eth0", "nodad")
        host.do("ip", "link", "set", "eth0", "up")

    def _write_names(self):
        pathlib.Path("/etc/hosts").touch()  # what names are mounted on: a bare Debian has none
        for host in self.hosts:
            lines = ["127.0.0.1 localhost", "::1 localhost", f"127.0.1.1 {host.name}"]
            lines += [f"{other.address} {other.name}" for other in self.hosts if other is not host]
            names = self.folder / f"names-{host.name}"
            names.write_text("\n".join(lines) + "\n")
            host.do("mount", "--bind", str(names), "/etc/hosts")

    def _answer_agents(self):
        """Runs for launch_agent.py, which calls from inside a host, what it was asked to start on another host."""
        agents = socket.socket(socket.AF_UNIX)
        agents.bind(str(self.folder / "agents"))
        agents.listen()

        def serve(caller):
            with caller:
                request, descriptors, _, _ = socket.recv_fds(caller, 1 << 16, 3)
                name, command = json.loads(request)
                hosts = [host for host in self.hosts if host.name == name]
                if hosts:
                    done = subprocess.run(hosts[0].words("sh", "-c", command), cwd="/", env=hosts[0].environment(),
                                          **dict(zip(("stdin", "stdout", "stderr"), descriptors)))
                    status = done.returncode
                else:
                    os.write(descriptors[2], f"launch_agent.py: there is no test host {name}\n".encode())
                    status = 255
                for descriptor in descriptors:
                    os.close(descriptor)
                try:
                    caller.sendall(str(status).encode())
                except OSError:
                    pass  # the caller has left

        def accept():
            while True:
                try:
                    caller, _ = agents.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(caller,), daemon=True).start()

        self.agents, self.answering = agents, threading.Thread(target=accept, daemon=True)
        self.answering.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.end()
        self.switch.end()
        if self.agents is not None:
            # Closing alone leaves the thread in accept(2), which the kernel may begin again with the number that is then another's.
            self.agents.shutdown(socket.SHUT_RDWR)
            self.answering.join()
            self.agents.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __getitem__(self, i):
        return self.hosts[i]

    def __iter__(self):
        return iter(self.hosts)

    def put(self, source, name):
        for host in self.hosts:
            path = host.put(source, name)
        return path

    def processes(self):
        """What runs on each host, for a test that fails: state, what the kernel waits for in it, seconds of CPU, command."""
        shown = []
        for host in self.hosts:
            done = subprocess.run(host.words("ps", "-eo", "pid,ppid,stat,wchan:20,cputimes,args"), capture_output=True, text=True)
            shown.append(f"{host.name}, process {host.pid}:\n{done.stdout}{done.stderr}")
        return "".join(shown)

    def rate(self, mbit):
        """Bandwidth of all links, both ways."""
        for host in self.hosts:
            host.rate(mbit)
            self.switch.do("tc", "qdisc", "replace", "dev", f"out{host.pid}", "root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb",
                           "latency", "50ms")

    def cut(self, host):
        """The host's link, until `mend`."""
        self.switch.do("ip", "link", "set", f"out{host.pid}", "down")

    def mend(self, host):
        self.switch.do("ip", "link", "set", f"out{host.pid}", "up")

    def mpirun(self, ranks, *flags):
        """Words that start as many ranks on each host as `ranks` says, by mpirun on the first host."""
        hosts = ",".join(f"{host.name}:{n}" for host, n in zip(self.hosts, ranks) if n)
        return ["mpirun", "--mca", "plm_rsh_agent", f"{AGENT} {self.folder / 'agents'}", "--mca", "oob_tcp_if_exclude", "docker0",  # docs/operators.md
                "--host", hosts, "--bind-to", "none", *flags]


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come within {seconds} s")
        time.sleep(0.05)
