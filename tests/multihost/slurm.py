"""Slurm on test hosts (hosts.py): munged and slurmd on each, slurmctld on the first; without cgroups, starting ranks by PMIx."""
import pathlib
import shutil
import subprocess
import tempfile
import time

from hosts import DISK, wait_for

# cred_expire: so many seconds after slurmctld signed a launch a node may be late with it, or the launch fails ("Job credential expired");
# and so long a job that is queued again waits.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={first.name}({first.address})
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={disk}/munge/socket,cred_expire=30
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
StateSaveLocation={disk}/slurm/state
SlurmdSpoolDir={disk}/slurm/spool
SlurmctldPidFile={disk}/slurm/slurmctld.pid
SlurmdPidFile={disk}/slurm/slurmd.pid
SlurmctldLogFile={disk}/slurm/slurmctld.log
SlurmdLogFile={disk}/slurm/slurmd.log
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=600
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SlurmdParameters=config_overrides
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""


def why_not():
    for tool in ("slurmctld", "slurmd", "sbatch", "munged"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (slurmctld, slurmd, slurm-client, munge)"
    return None


class Slurm:
    def __init__(self, hosts):
        self.hosts, self.first, self.daemons = hosts, hosts[0], []
        text = CONFIGURATION.format(first=hosts[0], disk=DISK)
        for host in hosts:
            text += f"NodeName={host.name} NodeAddr={host.address} CPUs=2 RealMemory=1024 State=UNKNOWN\n"
        with tempfile.TemporaryDirectory() as folder:
            configuration = pathlib.Path(folder) / "slurm.conf"
            configuration.write_text(text)
            mpi = pathlib.Path(folder) / "mpi.conf"
            mpi.write_text(f"PMIxCliTmpDirBase={DISK}/tmp\n")  # the hosts share /tmp
            key = pathlib.Path(folder) / "key"
            key.write_bytes(b"a key for tests of this machine alone" * 8)
            key.chmod(0o400)
            for host in hosts:
                host.do("mkdir", "-p", f"{DISK}/munge", f"{DISK}/slurm/state", f"{DISK}/slurm/spool")
                host.do("chmod", "755", DISK)
                host.put(configuration, "slurm.conf")
                host.put(mpi, "mpi.conf")
                host.put(key, "munge/key")
        for host in hosts:
            munge = f"{DISK}/munge"
            self._start(host, "munged", "--foreground", "--force", f"--key-file={munge}/key", f"--socket={munge}/socket",
                        f"--pid-file={munge}/pid", f"--seed-file={munge}/seed", f"--log-file={munge}/log")
        for host in hosts:
            wait_for(lambda: host.has(f"{DISK}/munge/socket"), 20, "munged")
        self._start(self.first, "slurmctld", "-D")
        for host in hosts:
            self._start(host, "slurmd", "-D", "-N", host.name)
        wait_for(lambda: self.command("sinfo", "-h", "-o", "%T %D").split() == ["idle", str(len(list(hosts)))], 60, "idle nodes")

    def _start(self, host, *words):
        self.daemons.append(host.start(["env", f"SLURM_CONF={DISK}/slurm.conf", *words], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def words(self, *words):
        return ["env", f"SLURM_CONF={DISK}/slurm.conf", *words]

    def run(self, *words):
        status, out, errors = self.first.run(self.words(*words))
        return status, out, errors if status is not None else errors + self.evidence()

    def command(self, *words):
        """Standard output of one of Slurm's commands."""
        status, out, errors = self.run(*words)
        if status != 0:
            return errors
        return out

    def submit(self, *words):
        """A job's number."""
        status, out, errors = self.run("sbatch", "--parsable", f"--chdir={DISK}", *words)
        if status != 0:
            raise RuntimeError(errors)
        return out.strip()

    def job(self, number, field):
        """A field of scontrol's, such as JobState."""
        for word in self.command("scontrol", "show", "job", number).split():
            if word.startswith(field + "="):
                return word.partition("=")[2]
        return None

    def await_state(self, number, states, seconds=120):
        end = time.monotonic() + seconds
        while self.job(number, "JobState") not in states:
            if time.monotonic() > end:
                raise TimeoutError(f"job {number} is {self.job(number, 'JobState')} and not {states} after {seconds} s; {self.evidence()}")
            time.sleep(0.3)

    def logs(self, number):
        return (self.first.read(f"longhaul-{number}.log") or b"").decode()

    def evidence(self):
        """For a test that fails: what Slurm thinks of its jobs and nodes, ends of all logs, and what runs."""
        shown = [f"{' '.join(words)}:\n{self.command(*words)}" for words in
                 (("scontrol", "show", "job"), ("scontrol", "show", "node"), ("sinfo", "-R"), ("sdiag",))]
        for host in self.hosts:
            for path in (*host.names("longhaul-*.log"), *host.names("slurm/*.log"), "munge/log"):
                shown.append(f"{host.name}, end of {path}:\n{(host.read(path) or b'').decode(errors='replace')[-6000:]}")
        return "\n".join([*shown, self.hosts.processes()])
