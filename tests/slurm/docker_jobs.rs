//! Two jobs with docker containers on one node, with a stand-in for docker that runs the main process of a container here.

use std::path::Path;

use crate::login_node::Login;

/// Notes the GPUs of each container; `ps` knows none.
const DOCKER: &str = "#!/bin/bash
cd DIR || exit 1
verb=$1
shift
case $verb in
run)
  gpus='' entry=''
  while [ $# -gt 0 ]; do
    case $1 in
    --gpus=*) gpus=${1#--gpus=} ;;
    --network=none) exit 0 ;;
    --entrypoint=*) entry=${1#*=}; break ;;
    esac
    shift
  done
  printf '%s %s\n' \"$SLURM_JOB_ID\" \"$gpus\" >>gpus
  shift 2
  cd /
  exec \"$entry\" \"$@\" ;;
image | ps | info | rm | stop) ;;
esac
";

const NVIDIA_SMI: &str = "#!/bin/sh
for word; do case $word in --id=*) printf '%s\\n' \"${word#--id=}\" | tr , '\\n' | sed 's/^/GPU-/' ;; esac; done
";

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn jobs_on_one_node_have_gpus_of_their_own() {
    let login = Login::new();
    let dir = login.cluster.path("docker");
    std::fs::create_dir_all(&dir).expect("made");
    std::fs::create_dir_all(login.cluster.path("bin")).expect("made");
    for (name, text) in [("docker", DOCKER), ("nvidia-smi", NVIDIA_SMI)] {
        let text = text.replace("DIR", &dir.display().to_string());
        std::fs::write(login.cluster.path(&format!("bin/{name}")), text).expect("written");
        assert!(login.cluster.run("chmod", &["755", &format!("bin/{name}")]).status.success());
    }
    let go = login.cluster.path("go");
    let ranks = format!(
        "container: {{ image: \"train:1\" }}\nlaunch:\n  with: script\n  shell: |\n    echo begins\n    while [ ! -e {} ]; do sleep 0.2; done\n",
        go.display()
    );
    let one_node = |name: &str| {
        let inventory = login.inventory(name, ", container: docker, args: [\"--nodelist=n0\"]", &ranks);
        let text = std::fs::read_to_string(&inventory).expect("read").replace("nodes: 2, gpus_per_node: 2", "nodes: 1, gpus_per_node: 1");
        std::fs::write(&inventory, text).expect("written");
        inventory
    };
    let (first, second) = (one_node("first"), one_node("second"));
    let jobs = [login.submit(&first), login.submit(&second)];
    let begun = |inventory: &Path| login.orchestrate(&["slurm", "logs"], inventory).out.contains("begins");
    login.cluster.wait_until("both jobs do not run", || begun(&first) && begun(&second));
    let noted = std::fs::read_to_string(dir.join("gpus")).expect("the containers' GPUs");
    let gpus_of = |job: &String| {
        let lines: Vec<&str> = noted.lines().filter_map(|line| line.strip_prefix(&format!("{job} "))).collect();
        assert_eq!(lines.len(), 1, "one container for job {job}: {noted}");
        lines[0].to_owned()
    };
    let mut gpus = jobs.each_ref().map(gpus_of);
    gpus.sort();
    assert_eq!(gpus, ["\"device=GPU-0\"", "\"device=GPU-1\""], "{noted}");
    std::fs::write(&go, "").expect("written");
    for inventory in [first, second] {
        login.orchestrate(&["slurm", "attach", "--progress", "plain"], &inventory).expect(0, &["COMPLETED"]);
        login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
    }
}
