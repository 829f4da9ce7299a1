//! `prepare` on SLURM: on the login node at `submit`, and as steps of the job.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::login_node::{CommandResult, Login};

fn write(login: &Login, name: &str, text: &str) {
    let path = login.cluster.path(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

fn follow(login: &Login, inventory: &Path) -> CommandResult {
    login.orchestrate(&["slurm", "attach", "--progress", "plain"], inventory)
}

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn tasks_of_the_host_are_done_once_at_submit() {
    let login = Login::new();
    write(&login, "src/COMMIT", "it's 3f2a\n");
    let text = "secrets: [HF_TOKEN]\nprepare:\n  - { name: code, sync: { from: ./src, to: ~/src } }\n  \
                - { name: build, hosts: master, chdir: ~/src, run: 'echo \"$ORCH_NNODES <$HF_TOKEN>\" >>built', creates: built }\n  \
                - { name: hand it out, copy: { from: \"master:~/src/built\", to: ~/wheels/ } }\n  \
                - { name: which commit, run: cat ~/src/COMMIT, register: CODE_COMMIT }\n\
                launch:\n  with: script\n  shell: echo \"$RANK [$CODE_COMMIT] $(cat ~/wheels/built)\"\n";
    let inventory = login.inventory("tasks", ", secrets: file", text);
    login.orchestrate(&["slurm", "submit", "--dry-run"], &inventory).expect(0, &["would send", "nothing was submitted"]);
    assert!(!login.cluster.path("home/src").exists(), "a dry run changes nothing");
    login.orchestrate(&["slurm", "submit"], &inventory).expect(0, &["changed 3  ok 1", "next: orchestrate slurm status"]);
    follow(&login, &inventory).expect(0, &["COMPLETED"]);
    let logs = login.orchestrate(&["slurm", "logs"], &inventory).expect(0, &[]);
    assert_eq!(logs.out.matches(" [it's 3f2a] 1 <***>").count(), 2, "{}", logs.out);
    // A second submission has nothing to do; a failed task submits nothing.
    login.orchestrate(&["slurm", "submit"], &inventory).expect(0, &["changed 0  ok 3  skipped 1"]);
    follow(&login, &inventory).expect(0, &["COMPLETED"]);
    let broken = std::fs::read_to_string(&inventory).expect("read").replace("run: cat ~/src/COMMIT", "run: exit 7");
    std::fs::write(&inventory, broken).expect("written");
    login.orchestrate(&["slurm", "submit"], &inventory).expect(1, &["task `which commit` failed on 127.0.0.1", "nothing was submitted"]);
    let queue = login.cluster.run("squeue", &["-h", "-n", "tasks"]);
    assert_eq!(String::from_utf8_lossy(&queue.stdout), "");
    login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
    assert!(!login.cluster.path("home/run/tasks").exists() && login.cluster.path("home/wheels/built").exists());
}

/// The `submit` that started the tasks may submit its job when they end: another one must not run them again beneath it.
#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn submit_that_meets_running_tasks_submits_nothing() {
    let login = Login::new();
    let (started, go) = (login.cluster.path("started"), login.cluster.path("go"));
    let run = format!("echo x >>'{}'; while [ ! -e '{}' ]; do sleep 0.2; done", started.display(), go.display());
    let text = format!("prepare:\n  - {{ name: slow, run: \"{run}\" }}\nlaunch:\n  with: script\n  shell: echo trained\n");
    let inventory = login.inventory("twice", "", &text);
    let submit = || login.command(&["slurm", "submit"], &inventory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let first = submit();
    login.cluster.wait_until("the task does not run", || started.exists());
    let mut second = submit();
    let mut said = BufReader::new(second.stderr.take().expect("its messages")).lines().map(|line| line.expect("a line"));
    assert!(said.any(|line| line.contains("waiting for them")), "the second one waits");
    std::fs::write(&go, "").expect("written");
    let rest: Vec<String> = said.collect();
    assert!(rest.join("\n").contains("another `slurm submit` started them"), "{rest:?}");
    assert_eq!(second.wait().expect("it ends").code(), Some(3));
    CommandResult::new(&first.wait_with_output().expect("it ends")).expect(0, &["next: orchestrate slurm status"]);
    assert_eq!(std::fs::read_to_string(&started).expect("read"), "x\n", "the task ran once");
    follow(&login, &inventory).expect(0, &["COMPLETED"]);
    login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
}

/// Docker without containers: `run -d` starts the main process here, `exec` runs its command here.
const DOCKER: &str = "#!/bin/bash
cd DIR || exit 1
[ \"$1\" != -H ] || shift 2
verb=$1 name='' image='' detached=''
shift
case $verb in
run)
  while [ $# -gt 0 ]; do
    case $1 in
    -d) detached=1 ;;
    --name=*) name=${1#--name=} ;;
    --entrypoint=*) break ;;
    esac
    shift
  done
  image=$2
  shift 2
  [ \"$image\" = train:1 ] || exit 125
  [ -n \"$detached\" ] || exit 0
  setsid /bin/sh \"$@\" >/dev/null 2>&1 </dev/null &
  echo $! >\"$name\"
  echo \"$name\" >>started ;;
exec)
  [ \"$1\" != -i ] || shift
  [ -e \"$1\" ] || { echo \"no such container: $1\" >&2; exit 1; }
  shift
  cd /
  exec \"$@\" ;;
inspect) [ -e \"${@: -1}\" ] && echo true ;;
wait) while [ -e \"$1\" ]; do sleep 0.2; done ;;
rm | stop)
  name=${@: -1}
  [ -e \"$name\" ] || exit 0
  kill -9 -- \"-$(cat \"$name\")\"
  rm -f \"$name\" ;;
image | ps | info) ;;
esac
";

/// srun without pyxis: notes its options and leaves them out.
const SRUN: &str = "#!/bin/bash
words=()
for word; do
  case $word in --container-* | --no-container-*) echo \"$word\" >>DIR/options ;; *) words+=(\"$word\") ;; esac
done
exec /usr/bin/srun \"${words[@]}\"
";

const STEPS: &str = "container: { image: \"train:1\", env: { MIRROR: local } }\nprepare:\n  \
                     - { name: one, run: 'echo \"$ORCH_HOST $MIRROR $A\" >DIR/done.$ORCH_HOST', env: { A: \"b 'c' $d\" }, unless: \"test -e DIR/done.$ORCH_HOST\" }\n  \
                     - { name: two, hosts: workers, run: 'echo \"value of $ORCH_HOST\"', register: VALUE }\n  \
                     - { name: three, hosts: master, run: 'echo \"three has $VALUE\"; LAST' }\n\
                     launch:\n  with: script\n  stop_grace: 5s\n  shell: |\n    trap 'echo saved; exit 3' TERM\n    echo \"$RANK $VALUE ${A-none}\"\n    \
                     while [ -e DIR/wait ]; do sleep 0.2; done\n";

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn tasks_in_containers_are_steps_of_the_job() {
    let login = Login::new();
    let dir = login.cluster.path("docker");
    let text = |text: &str, last: &str| text.replace("DIR", &dir.display().to_string()).replace("LAST", last);
    write(&login, "docker/wait", "");
    for (name, body) in [("docker", DOCKER), ("srun", SRUN)] {
        write(&login, &format!("bin/{name}"), &text(body, ""));
        assert!(login.cluster.run("chmod", &["755", &format!("bin/{name}")]).status.success());
    }
    let inventory = login.inventory("steps", ", container: docker", &text(STEPS, "true"));
    login.submit(&inventory);
    let logs = || login.orchestrate(&["slurm", "logs"], &inventory).out;
    let both = |text: &str| text.contains("0 value of n1 none") && text.contains("1 value of n1 none");
    login.cluster.wait_until("the ranks do not run", || both(&logs()));
    for node in ["n0", "n1"] {
        assert_eq!(std::fs::read_to_string(dir.join(format!("done.{node}"))).expect("made"), format!("{node} local b 'c' $d\n"));
    }
    let started = std::fs::read_to_string(dir.join("started")).expect("containers");
    assert_eq!(started.lines().count(), 2, "one a node for the whole job: {started}");
    let beats = login.cluster.run("sh", &["-c", "cat home/run/steps/n[01].in/*/beat | wc -l"]);
    assert_eq!(String::from_utf8_lossy(&beats.stdout).trim(), "2", "without a beat a container would end");
    login.orchestrate(&["slurm", "cancel"], &inventory).expect(0, &["CANCELLED"]);
    assert_eq!(logs().matches("saved").count(), 2, "{}", logs());
    assert!(started.lines().all(|name| !dir.join(name).exists()), "a container is left");
    login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
    // What exists is not made again; a task that fails ends the job before its ranks.
    std::fs::write(&inventory, std::fs::read_to_string(&inventory).expect("read").replace("; true'", "; exit 7'")).expect("written");
    let job = login.submit(&inventory);
    follow(&login, &inventory).expect(1, &["task 3: three failed"]);
    login.orchestrate(&["slurm", "status"], &inventory).expect(1, &["FAILED", "the job's script gave up: task 3: three failed"]);
    let log = std::fs::read_to_string(login.cluster.path(&format!("home/run/steps/steps-{job}.out"))).expect("the job's log");
    for line in ["n0: task 1: skipped, unless succeeded", "three has value of n1", "n0: task 3: exit code 7"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
    std::fs::remove_file(dir.join("wait")).expect("removed");
    write(&login, "docker/train.sqsh", "");
    let image = format!(", container: pyxis, image: {}", dir.join("train.sqsh").display());
    let named = login.inventory("named", &image, &text(STEPS, "true"));
    let job = login.submit(&named);
    follow(&login, &named).expect(0, &["COMPLETED"]);
    let said = login.orchestrate(&["slurm", "logs"], &named).expect(0, &[]).out;
    assert!(both(&said) && said.contains("three has value of n1"), "{said}");
    let options = std::fs::read_to_string(dir.join("options")).expect("options of srun");
    let names: Vec<&str> = options.lines().filter(|word| word.starts_with("--container-name=")).collect();
    assert_eq!(names, vec![format!("--container-name=orch-named-{job}-0"); 4], "three tasks and the ranks in one container");
    let left = std::fs::read_dir(&dir)
        .expect("a folder")
        .filter_map(Result::ok)
        .filter(|file| file.file_name().to_string_lossy().starts_with("orch-"))
        .count();
    assert_eq!((left, login.cluster.path("home/run/steps").exists()), (0, false));
}
