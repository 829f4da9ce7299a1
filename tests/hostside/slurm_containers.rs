//! What SLURM does not end: the containers of a job that is gone.

use super::*;

/// A line of standard input stands for two seconds, a line of output says that the beat was read.
#[test]
fn container_of_a_dead_job_ends_by_itself() {
    let dir = tempfile::tempdir().expect("a folder");
    let script = read_asset("slurm/idle.sh").replace("sleep 2 & wait $!", "echo read; read -r _");
    std::fs::write(dir.path().join("idle"), script).expect("written");
    let child = Command::new("sh").arg(dir.path().join("idle")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
    let mut idle = ChildGuard(child);
    let mut clock = idle.0.stdin.take().expect("piped");
    let mut reads = BufReader::new(idle.0.stdout.take().expect("piped")).lines();
    let mut tick = |beat: Option<usize>| {
        reads.next().map(|line| {
            line.expect("text");
            if let Some(beat) = beat {
                std::fs::write(dir.path().join("beat"), format!("{beat}\n")).expect("written");
            }
            writeln!(clock).expect("read");
        })
    };
    // Longer than the limit, with a beat that changes.
    for beat in 0..100 {
        tick(Some(beat)).expect("the container's holder lives");
    }
    let quiet = (0..100).take_while(|_| tick(None).is_some()).count();
    assert!(idle.0.wait().expect("its end").success(), "without a new beat it ends");
    assert_eq!(quiet, 61, "two minutes after the last beat");
}

#[test]
fn named_containers_of_dead_jobs_are_removed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    for folder in ["files", "bin"] {
        std::fs::create_dir(path(folder)).expect("made");
    }
    let log = path("removed");
    let enroot = format!(
        "#!/bin/sh\ncase $1 in list) printf '%s\\n' ubuntu pyxis_7.0 pyxis_orch-a-7-0 pyxis_orch-b-x-8-1 pyxis_orch-a-9-0 pyxis_orch-a-10-0 \
         'pyxis_orch-a-$(id)-0' ;; *) echo \"$*\" >>'{}' ;; esac\n",
        log.display()
    );
    // Job 7 has ended, 8 is forgotten, 9 runs, 10 cannot be asked for, 11 is this one.
    let squeue = "#!/bin/sh\ncase \"$*\" in *' 7 '*) echo FAILED ;; *' 8 '*) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;\n\
                  *' 9 '*) echo RUNNING ;; *) echo 'Unable to contact slurm controller' >&2; exit 1 ;; esac\n";
    for (name, text) in [("bin/enroot", enroot.as_str()), ("bin/squeue", squeue), ("job.env", "ORCH_NAME='a'\n")] {
        std::fs::write(path(name), text).expect("written");
        std::fs::set_permissions(path(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    }
    std::fs::write(path("files/remove"), read_asset("slurm/remove-pyxis.sh")).expect("written");
    let search = format!("{}:{}", path("bin").display(), std::env::var("PATH").expect("a path"));
    let output = Command::new("sh")
        .arg(path("files/remove"))
        .envs([("PATH", search.as_str()), ("SLURM_JOB_ID", "11"), ("SLURMD_NODENAME", "n0")])
        .output()
        .expect("a shell");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let removed = std::fs::read_to_string(log).expect("removed");
    assert_eq!(removed, "remove -f pyxis_orch-a-7-0\nremove -f pyxis_orch-b-x-8-1\n");
}
