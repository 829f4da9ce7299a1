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
        write_program(&path(name), text);
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

/// Runs the part of a node's task that is before its container starts, with stand-ins for docker, squeue and nvidia-smi, then `rest`.
fn run_docker_part(programs: &[(&str, &str)], variables: &[(&str, &str)], rest: &str) -> (tempfile::TempDir, std::process::Output) {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, text) in programs {
        write_program(&dir.path().join(name), &format!("#!/bin/sh\n{text}"));
    }
    let script = format!("fail() {{ echo \"failed: $*\"; exit 1; }}\nhost=n0\n{}\n{rest}\n", read_asset("slurm/docker.sh"));
    std::fs::write(dir.path().join("task"), script).expect("written");
    let output = Command::new("sh")
        .arg(dir.path().join("task"))
        .current_dir(dir.path())
        .env("PATH", format!("{}:/usr/bin:/bin", dir.path().display()))
        .envs([("SLURM_JOB_ID", "11"), ("ORCH_NAME", "a")].iter().chain(variables).copied())
        .output()
        .expect("a shell");
    (dir, output)
}

#[test]
fn docker_containers_of_dead_jobs_are_removed_and_no_others() {
    // Each container is named after its job's state.
    let docker = "case $1 in
ps) printf '%s\\n' failed\\ 7\\ n0 forgotten\\ 8\\ n0 running\\ 9\\ n0 unasked\\ 10\\ n0 own\\ 11\\ n0 own-elsewhere\\ 11\\ n1 \\
  completing\\ 12\\ n0 suspended\\ 13\\ n0 requeued\\ 14\\ n0 filtered\\ 15\\ n0 no-job\\ x7\\ n0 without-job\\ \\ n0 ;;
rm) echo \"$*\" >>removed ;;
esac
";
    let squeue = "case \"$*\" in
*'-j 7 '*) echo FAILED ;;
*'-j 8 '*) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
*'-j 9 '*) echo RUNNING ;;
*'-j 12 '*) echo COMPLETING ;;
*'-j 13 '*) echo SUSPENDED ;;
*'-j 14 '*) echo PENDING ;;
*'-j 15 '*) ;;
*) echo 'Unable to contact slurm controller' >&2; exit 1 ;;
esac
";
    let (dir, output) = run_docker_part(&[("docker", docker), ("squeue", squeue)], &[], "");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let removed = std::fs::read_to_string(dir.path().join("removed")).expect("removed");
    assert_eq!(removed, "rm -f failed\nrm -f forgotten\nrm -f own\nrm -f requeued\n");
}

#[test]
fn container_gets_the_gpus_of_the_job_and_no_others() {
    let smi = "case \"$*\" in *--id=1,3\\ *) printf 'GPU-b\\nGPU-d\\n' ;; *) exit 6 ;; esac\n";
    let gpus = |programs: &[(&str, &str)], variables: &[(&str, &str)]| {
        let output = run_docker_part(programs, variables, "job_gpus\necho \"$gpus\"").1;
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    let docker = ("docker", ":\n");
    let both = ("ORCH_GPUS", "2");
    assert_eq!(gpus(&[docker, ("nvidia-smi", smi)], &[both, ("CUDA_VISIBLE_DEVICES", "1,3")]), "GPU-b,GPU-d");
    // Without nvidia-smi: the numbers that SLURM counts on the node, not those that it shows the task.
    let shown = ("CUDA_VISIBLE_DEVICES", "0,1");
    assert_eq!(gpus(&[docker], &[both, shown, ("SLURM_STEP_GPUS", "6,7")]), "6,7");
    // SLURM_JOB_GPUS has those of the node of the batch script.
    let step = |gpus| vec![both, ("SLURM_JOB_GPUS", "4,5"), ("SLURM_STEP_GPUS", gpus)];
    for (variables, count) in [(step(""), 0), (step("4"), 1), (step("4,5,6"), 3)] {
        let said = gpus(&[docker], &variables);
        assert!(said.starts_with(&format!("failed: SLURM gave {count} GPUs to this job here, not 2")), "{said}");
    }
}
