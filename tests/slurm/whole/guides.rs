//! The shipped inventories of three guides, on SLURM and on bare hosts: the same ranks with the same environment. accelerate, torch, git and pip
//! are stand-ins, and so are the models: a program in which all ranks meet over TCP. The two bare hosts are this machine, as the nodes are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::login_node::Login;

const PYTHON: &str = "#!/bin/bash
case \"$*\" in
'-m torch.distributed.run '*) exec PYTHON DIR/payload/launcher.py \"$@\" ;;
'-m pip install '*) echo \"pip installs ${@: -1}\"; basename \"${@: -1}\" >>DIR/installed ;;
'-m pip show -q '*) exec grep -qs \"^${@: -1}\" DIR/installed ;;
'setup.py '*) mkdir -p dist && echo wheel >dist/deepspeed-0.1-py3-none-any.whl ;;
'-u '*.py* | *.py*) exec PYTHON DIR/payload/meet.py \"$@\" ;;
*) exec PYTHON \"$@\" ;;
esac
";

/// Two GPUs, whatever is asked.
const NVIDIA_SMI: &str = "#!/bin/sh
case \"$*\" in
-L) for gpu in 0 1; do echo \"GPU $gpu: NVIDIA H100 (UUID: GPU-$gpu)\"; done ;;
*) for gpu in 0 1; do echo \"$gpu, GPU-$gpu, NVIDIA H100\"; done ;;
esac
";

struct Guide {
    login: Login,
    /// Of the second bare host.
    second_port: u16,
}

impl Guide {
    fn new() -> Guide {
        let second_port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        let guide = Guide { login: Login::with_sshd_options(&format!("Port {second_port}\n")), second_port };
        let known = std::fs::read_to_string(guide.login.cluster.path("known")).expect("read");
        let second = known.replace(&format!("]:{} ", guide.login.port), &format!("]:{second_port} "));
        guide.write("known", &format!("{known}{second}"));
        let dir = guide.login.cluster.dir.path().display().to_string();
        let python = guide.login.cluster.run("python3", &["-c", "import sys; print(sys.executable)"]);
        let python = String::from_utf8_lossy(&python.stdout).trim().to_owned();
        let payload = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slurm/payload");
        for file in ["launcher.py", "meet.py"] {
            guide.write(&format!("payload/{file}"), &std::fs::read_to_string(payload.join(file)).expect("read"));
        }
        let script = |text: &str| text.replace("PYTHON", &python).replace("DIR", &dir);
        for name in ["python", "python3"] {
            guide.write(&format!("bin/{name}"), &script(PYTHON));
        }
        guide.write("bin/accelerate", &script("#!/bin/sh\nexec PYTHON DIR/payload/launcher.py \"$@\"\n"));
        guide.write("bin/nvidia-smi", NVIDIA_SMI);
        // What the wheel would bring.
        guide.write("bin/deepspeed", "#!/bin/sh\nexit 1\n");
        guide.write("bin/git", "#!/bin/sh\nmkdir -p \"$5/examples/pytorch/translation\" && : >\"$5/examples/pytorch/translation/run_translation.py\" && echo ok >\"$5/setup.py\"\n");
        // A shell without a login finds the stand-ins, too.
        guide.write("home/.bashrc", &format!("echo noise\nexport PATH={dir}/bin:$PATH\n"));
        guide.write("home/taehv/accelerate_configs/deepspeed_16gpu.yaml", "num_machines: 2\nnum_processes: 4\n");
        guide.write("home/taehv/taehv_train.py", "");
        guide.write("configs/openpi/scripts/run_distributed.py", "");
        assert!(guide.login.cluster.run("sh", &["-c", "chmod 755 bin/*"]).status.success());
        guide
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.login.cluster.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    /// A shipped inventory, and beside it what is different here: addresses, and two ranks a host.
    fn inventory(&self, file: &str, hosts: [&str; 2]) -> PathBuf {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(file);
        self.write(&format!("configs/{file}"), &std::fs::read_to_string(shipped).expect("read"));
        let port = self.login.port;
        let host = |name: &str, port: u16| {
            format!(
                "  - {{ name: {name}, address: 127.0.0.1, fabric_address: 127.0.0.1, gpus: 2, ssh: {{ user: root, port: {port}, identity: ../id, known_hosts: ../known }} }}\n"
            )
        };
        let here = format!(
            "hosts:\n{}{}ssh: {{ user: root, port: {port}, identity: ../id, known_hosts: ../known }}\nrun_dir: ~/run\n\
             launch: {{ nproc_per_node: 2, stop_grace: 5s }}\n\
             slurm: {{ login: 127.0.0.1, gpus_per_node: 2, cpus_per_task: 2, time: \"10\", partition: gpu }}\n",
            host(hosts[0], port),
            host(hosts[1], self.second_port),
        );
        self.write("configs/here.yaml", &here);
        self.login.cluster.path(&format!("configs/{file}"))
    }

    fn orchestrate(&self, words: &[&str], inventory: &Path) -> crate::login_node::CommandResult {
        let here = self.login.cluster.path("configs/here.yaml").display().to_string();
        self.login.orchestrate(&[words, &["-i", &inventory.display().to_string(), "-i"]].concat(), Path::new(&here))
    }
}

/// The variables of each rank, and what it printed beside them.
fn read_ranks(logs: &str) -> BTreeMap<String, (BTreeMap<String, String>, Vec<String>)> {
    let mut ranks: BTreeMap<String, (BTreeMap<String, String>, Vec<String>)> = BTreeMap::new();
    for line in logs.lines() {
        let Some((rank, text)) = line.strip_prefix("[rank ").and_then(|line| line.split_once("] ")) else { continue };
        let of_rank = ranks.entry(rank.split(' ').next().unwrap_or_default().to_owned()).or_default();
        match text.strip_prefix("env ").and_then(|text| text.split_once('=')) {
            Some((name, value)) => drop(of_rank.0.insert(name.to_owned(), value.to_owned())),
            None => of_rank.1.push(text.to_owned()),
        }
    }
    ranks
}

/// Names that differ, `SLURM_*` and `SRUN_*` as one: `+NAME` is on SLURM alone, `-NAME` on bare hosts alone, `NAME` has another value.
fn differences(on_slurm: &BTreeMap<String, String>, on_hosts: &BTreeMap<String, String>) -> BTreeSet<String> {
    let names: BTreeSet<&String> = on_slurm.keys().chain(on_hosts.keys()).collect();
    let differs = names.into_iter().filter(|name| on_slurm.get(*name) != on_hosts.get(*name) && !OF_THE_TEST.contains(&name.as_str()));
    let shown = differs.map(|name| {
        let sign = match (on_slurm.get(name), on_hosts.get(name)) {
            (Some(_), None) => "+",
            (None, Some(_)) => "-",
            _ => "",
        };
        let known = ["SLURM", "SRUN"].into_iter().find(|start| name.starts_with(start));
        known.map_or_else(|| format!("{sign}{name}"), |start| format!("{sign}{start}_*"))
    });
    shown.collect()
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn guides_run_on_slurm_as_on_bare_hosts() {
    let guide = Guide::new();
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (file, hosts) in [
        ("taehv.yaml", ["jo-dbxfe2k2l635222i-worker-0", "jo-dbxfe2k2l635222i-worker-1"]),
        ("pi0-jax.yaml", ["node0", "node1"]),
        ("translation.yaml", ["node1", "node2"]),
    ] {
        let inventory = guide.inventory(file, hosts);
        guide.orchestrate(&["slurm", "submit"], &inventory).expect(0, &["next: orchestrate slurm status"]);
        guide.orchestrate(&["slurm", "attach", "--progress", "plain"], &inventory).expect(0, &["COMPLETED", "4 ok"]);
        let on_slurm = read_ranks(&guide.orchestrate(&["slurm", "logs"], &inventory).expect(0, &[]).out);
        guide.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
        guide.orchestrate(&["up", "--preflight", "off", "--keep"], &inventory).expect(0, &["4 ok"]);
        let on_hosts = read_ranks(&guide.orchestrate(&["logs"], &inventory).expect(0, &[]).out);
        guide.orchestrate(&["down"], &inventory).expect(0, &[]);
        assert_eq!(on_slurm.len(), 4, "{file}: {on_slurm:?}");
        for (rank, (env, lines)) in &on_slurm {
            let (env_there, lines_there) = &on_hosts[rank];
            let without_port = |lines: &[String], env: &BTreeMap<String, String>| lines.join("\n").replace(&env["MASTER_PORT"], "PORT");
            assert_eq!(without_port(lines, env), without_port(lines_there, env_there), "{file} rank {rank}");
            assert!(lines.iter().any(|line| line.starts_with("sum 6 ")), "{file}: all ranks met: {lines:?}");
            for name in ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"] {
                assert!(env.contains_key(name) && env.get(name) == env_there.get(name), "{file} rank {rank}: {name}");
            }
            found.entry(file).or_default().extend(differences(env, env_there));
        }
    }
    let all: BTreeSet<String> = found.values().flatten().cloned().collect();
    assert_eq!(all.iter().map(String::as_str).collect::<Vec<_>>(), DIFFERENCES, "{found:?}");
}

/// Of shells and of the test's sshd.
const OF_THE_TEST: [&str; 7] = ["_", "SLURM_JOB_ID", "HOSTNAME", "PATH", "SBATCH_HOLD", "SSH_CLIENT", "SSH_CONNECTION"];

/// docs/slurm.md lists them.
const DIFFERENCES: [&str; 20] = [
    "+CUDA_VISIBLE_DEVICES",
    "+ENVIRONMENT",
    "+GPU_DEVICE_ORDINAL",
    "+ORCH_ADDRESS",
    "+ORCH_MASTER_NAME",
    "+ORCH_RUN_STAMP",
    "+ROCR_VISIBLE_DEVICES",
    "+SLURM_*",
    "+SRUN_*",
    "+TMPDIR",
    "+ZE_AFFINITY_MASK",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_COORDINATOR_BIND_ADDRESS",
    "MASTER_PORT",
    "ORCH_HOST",
    "ORCH_HOSTFILE",
    "ORCH_HOSTS",
    "ORCH_MASTER_PORT",
    "ORCH_RUN_DIR",
    "ORCH_RUN_ID",
];
