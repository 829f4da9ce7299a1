//! What each check says of a host whose answer has one problem, while the others are in order.

use Level::{Fail, Pass, Skipped, Warn};

use super::tests::{TEST_INVENTORY, assert_third_host};
use crate::model::level::Level;

/// A check; the replacements in the third host's answers; the level and the message of the result.
type ProblemRow = (&'static str, &'static [(&'static str, &'static str)], Level, &'static str);

const PROBLEMS: &[ProblemRow] = &[
    ("clock", &[("clock 0.1 1.0", "clock 5000 20")], Warn, "+5.00 s ± 0.02 s from gpu01"),
    ("clock", &[("clock 0.1 1.0", "clock 700 400")], Pass, "+0.70 s"),
    ("arch", &[("x86_64", "aarch64")], Fail, "Linux aarch64 instead of Linux x86_64"),
    ("cpus", &[("cpus 64", "cpus 32")], Warn, "32 processors instead of 64"),
    ("cpus", &[("cpus 64", "cpus 1")], Warn, "1 processor for 2 ranks"),
    ("memory", &[("Available 900000000", "Available 90000000")], Warn, "85.8 GiB of 953.7 GiB available"),
    (
        "memory",
        &[("Total 1000000000", "Total 800000000"), ("Available 900000000", "Available 700000000")],
        Warn,
        "762.9 GiB instead of 953.7 GiB",
    ),
    ("memory", &[("Total 1000000000", "Total 4000000"), ("Available 900000000", "Available 3000000")], Warn, "shm_size is 8.0 GiB"),
    ("disk", &[("disk /r 4000000000 3000000000", "disk /r 4000000000 1000000")], Fail, "1 GiB needed"),
    ("disk", &[("disk /r 4000000000 3000000000", "disk /r 4000000000 3000000")], Warn, "2.9 GiB free under /r"),
    ("disk", &[("disk /out 4000000000 3000000000", "disk /out 4000000000 12")], Fail, "12 KiB free under /out"),
    ("inodes", &[("1000000 900000\ndisk", "1000000 0\ndisk")], Fail, "0 of 1000000 inodes free under /r"),
    ("inodes", &[("1000000 900000\ndisk", "1000000 9000\ndisk")], Warn, "9000 of 1000000"),
    ("limits", &[("nofile 1048576", "nofile 256")], Warn, "256 open files"),
    ("limits", &[("memlock unlimited", "memlock 64")], Warn, "InfiniBand needs unlimited"),
    ("shm", &[("inside_shm 8388608", "inside_shm 65536")], Warn, "64 MiB of shared memory"),
    (
        "leftovers",
        &[("docker 24.0.7", "docker 24.0.7\ncontainer c exited 0 1 false sha256:1 /orch-a-gpu03 a gpu03 f")],
        Warn,
        "orch-a-gpu03 (exited)",
    ),
    (
        "leftovers",
        &[("docker 24.0.7", "docker 24.0.7\nkeep yes\ncontainer c exited 0 1 false sha256:1 /orch-a-gpu03 a gpu03 f")],
        Pass,
        "kept",
    ),
    ("docker", &[("docker 24.0.7", "docker_error Cannot connect to the Docker daemon")], Fail, "does not respond"),
    ("container-name", &[("docker 24.0.7", "docker 24.0.7\ntaken /")], Fail, "did not create"),
    (
        "docker-disk",
        &[("docker_disk /var/lib/docker 4000000000 3000000000", "docker_disk /var/lib/docker 4000000000 2000000")],
        Warn,
        "1.9 GiB free",
    ),
    (
        "docker-disk",
        &[("docker 4000000000 3000000000", "docker 4000000000 2000"), ("image sha256:aaaaaaaaaaaaaaaa\n", "")],
        Fail,
        "still has to be pulled",
    ),
    ("run-dir", &[("run_dir_system xfs", "run_dir_system nfs")], Warn, "/r is on nfs: if the server squashes root"),
    ("run-dir", &[("run_dir_system xfs", "run_dir_system lustre")], Warn, "docker cannot mount it"),
    ("run-dir", &[("run_dir_system xfs", "run_dir_system -")], Skipped, "could not read its file system type"),
    ("cgroup", &[("cgroupfs|", "systemd|")], Warn, "daemon-reload"),
    ("cgroup", &[("docker_info cgroupfs|", "char_links yes\ndocker_info systemd|")], Pass, "systemd"),
    ("image", &[("sha256:aaaaaaaaaaaaaaaa", "sha256:bbbbbbbbbbbbbbbb")], Fail, "bbbbbbbbbbbb instead of aaaaaaaaaaaa"),
    ("image", &[("image sha256:aaaaaaaaaaaaaaaa", "")], Skipped, "will be pulled"),
    ("image-versions", &[("torch 2.4.0", "torch 2.3.0")], Fail, "torch 2.3.0 instead of torch 2.4.0"),
    ("image-versions", &[("python 3.11.9", "python 3.11.8")], Warn, "python 3.11.8"),
    ("image-versions", &[("version nccl 2.20.5\n", "")], Fail, "nccl (none) instead of nccl 2.20.5"),
    ("nvidia-runtime", &[("inside_gpus 2", "inside_failed 125\ninside_error could not select device driver")], Fail, "could not select"),
    ("nvidia-runtime", &[("inside_gpus 2", "inside_gpus 1")], Fail, "1 of 2 GPUs are visible inside"),
    ("nvidia-runtime", &[("inside_gpus 2", "inside_devices 0")], Skipped, "no nvidia-smi in the image"),
    ("gpu-count", &[("gpu GPU 1: H100 (UUID: GPU-31)\n", "")], Fail, "1 of 2 GPUs found"),
    ("gpu-count", &[("UUID: GPU-31", "UUID: GPU-20")], Warn, "it has the same GPUs as gpu02: both names lead to one machine"),
    ("gpu-count", &[("gpu GPU 1: H100", "gpu GPU 2: H100 (UUID: GPU-2)\ngpu GPU 1: H100")], Warn, "3 GPUs instead of 2 GPUs"),
    ("gpu-model", &[("NVIDIA H100", "NVIDIA A100")], Warn, "NVIDIA A100 instead of NVIDIA H100"),
    ("gpu-model", &[("1, GPU-1, NVIDIA H100", "1, GPU-1, NVIDIA A100")], Warn, "1 × NVIDIA H100, 1 × NVIDIA A100"),
    ("gpu-capability", &[(", 9.0,", ", 8.0,")], Warn, "8.0 instead of 9.0"),
    ("driver", &[("550.54", "535.129")], Warn, "535.129 instead of 550.54"),
    ("driver", &[("gpu_fields", "gpu_error nvidia-smi gave no answer within 20 s\nx")], Skipped, "no answer within 20 s"),
    (
        "mig",
        &[(
            "1, GPU-1, NVIDIA H100, 550.54, 9.0, Enabled, Enabled, 0, Disabled",
            "1, GPU-1, NVIDIA H100, 550.54, 9.0, Enabled, Enabled, 0, Enabled",
        )],
        Warn,
        "on, on GPU 1",
    ),
    ("ecc", &[("Enabled, 0, Disabled\nremap", "Enabled, 3, Disabled\nremap")], Warn, "GPU 1"),
    ("ecc", &[("Enabled, Enabled", "Enabled, Disabled")], Warn, "ECC Disabled instead of ECC Enabled"),
    ("row-remap", &[("remap GPU-0, 0, 0", "remap GPU-0, 1, 0")], Warn, "GPU 0 need a reset to be remapped"),
    ("row-remap", &[("remap GPU-0, 0, 0", "remap GPU-1, No, Yes")], Fail, "GPU 1 could not be remapped"),
    ("persistence", &[("9.0, Enabled", "9.0, Disabled")], Warn, "off on GPU 0,1"),
    ("xid", &[("kernel_log dmesg", "kernel_log dmesg\nxid [1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, bus")], Fail, "fell off the bus"),
    ("xid", &[("kernel_log dmesg", "kernel_log dmesg\nxid [1.0] NVRM: Xid (PCI:0000:3b:00): 74, pid=1, x")], Warn, "NVLink error"),
    ("xid", &[("kernel_log dmesg", "kernel_log dmesg\nxid [1.0] NVRM: Xid (PCI:0000:3b:00): 13, pid=1, x")], Pass, "no hardware Xid"),
    ("xid", &[("kernel_log dmesg\n", "")], Skipped, "user li may not read the kernel log"),
    ("fabric-manager", &[("fabric_manager active", "fabric_manager failed")], Fail, "nvidia-fabricmanager is failed"),
    (
        "gpu-idle",
        &[("kernel_log", "app - - zhao 4711, GPU-1, 4096, python3|python3 train.py\nkernel_log")],
        Fail,
        "GPU 1: zhao runs `python3 train.py` (pid 4711, 4096 MiB)",
    ),
    ("gpu-idle", &[("kernel_log", "app ours - zhao 4711, GPU-1, 4096, python3|x\nkernel_log")], Pass, "GPUs are idle"),
    ("mounts", &[("file 1 type directory", "file 1 type missing")], Fail, "/out is missing"),
    ("mounts", &[("file 1 type directory", "file 1 type hung")], Fail, "stale network mount"),
    ("mount-system", &[("file 1 system nfs", "file 1 system ext2/ext3")], Warn, "/out: ext2/ext3 instead of nfs"),
    ("mount-content", &[("content 3 sizes:aa", "content 2 sizes:cc")], Warn, "/data: 2 files (cc) instead of 3 files (aa)"),
    (
        "mount-write",
        &[("write 0 yes", "write 0 no Read-only file system")],
        Fail,
        "0:0 cannot write to /out inside the container: Read-only file system",
    ),
    ("paths", &[("content 9 sizes:bb\nin2 a 1", "content 8 sizes:cc\nin2 b 1")], Fail, "/models: 8 files"),
    ("paths", &[("file 2 type directory", "file 2 type missing")], Fail, "/models is missing"),
    ("same", &[("same 0 0 ff 6.1", "same 0 0 ee 5.15")], Fail, "`uname -r`: 5.15 instead of 6.1"),
    ("same", &[("same 0 0 ff 6.1", "same 0 127 ee not found")], Fail, "ends with 127: not found"),
    ("nic", &[("route 10.0.0.1 bond0", "route 10.0.0.1 eth0")], Warn, "uses eth0"),
    ("nic", &[("route 10.0.0.1 bond0", "route 10.0.0.1 -")], Fail, "no route"),
    ("mtu", &[("bond0 9000", "bond0 1500")], Warn, "1500 instead of 9000"),
    ("infiniband", &[("ACTIVE", "DOWN")], Warn, "mlx5_0/1 DOWN 400 Gb/sec instead of mlx5_0/1 ACTIVE 400 Gb/sec"),
    ("nccl-conf", &[("port_range", "nccl_conf abc\nport_range")], Warn, "(abc) instead of no /etc/nccl.conf"),
    ("reach-master", &[("given>0 yes open", "given>0 yes refused")], Fail, "gpu01:29500 is refused although it listens (firewall REJECT?)"),
    ("reach-master", &[("given>0 yes open", "given>0 yes blocked no answer within 3 s")], Fail, "(firewall DROP?)"),
    ("reach-master", &[("given>0 yes open", "given>0 no refused")], Pass, "is reachable"),
    (
        "reach-ephemeral",
        &[("ephemeral>0 yes open", "ephemeral>0 yes blocked no answer within 3 s")],
        Fail,
        "cannot connect to gpu01 on an ephemeral port",
    ),
    ("reach-ephemeral", &[("ephemeral>0 yes open", "ephemeral>0 no untold nothing to listen with")], Skipped, "nothing to listen with"),
    ("clock", &[], Pass, "from gpu01"),
    ("gpu-model", &[("NVIDIA H100,", "NVIDIA H100, PCIe,")], Warn, "NVIDIA H100, PCIe instead of NVIDIA H100"),
];

#[test]
fn problem_is_reported_only_for_its_host() {
    for &(name, changes, level, expected) in PROBLEMS {
        assert_third_host(TEST_INVENTORY, name, changes, (level, expected));
    }
}
