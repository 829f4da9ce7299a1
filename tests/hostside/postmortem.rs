//! The host's evidence about a run that failed there.

use std::process::Stdio;

use crate::{TestHost, read_asset, write_program};

#[test]
fn oom_kill_of_another_container_is_not_reported() {
    let host = TestHost::new();
    let (ours, other) = ("c0ffee".repeat(10), "dec0de".repeat(10));
    let lines = |pid: u32, id: &str| {
        format!(
            "[  900.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/system.slice/docker-{id}.scope,task=python,pid={pid},uid=0\n\
             [  900.2] Memory cgroup out of memory: Killed process {pid} (python) total-vm:70000kB\n"
        )
    };
    host.write_file("log", &(lines(41, &ours) + &lines(42, &other) + "[  901.0] NVRM: Xid (PCI:0000:3b:00): 79\n"));
    write_program(&host.path("bin/dmesg"), &format!("#!/bin/sh\ncat '{}'\n", host.path("log").display()));
    let docker = format!("D() {{ echo 'id={ours} status=exited exit=137 oom-killed=true error='; }}");
    let known = |container: &str| {
        let set = format!("F='{}/h.out/run1.' container={container} init=; {docker}; {}", host.path("").display(), read_asset("read.sh"));
        // With this uptime, the log lines date from the run.
        let script = format!("{set}\n{}", read_asset("postmortem.sh").replace("</proc/uptime", "<uptime"));
        host.write_file("uptime", "1000.00 1.00\n");
        let output = host.shell_command().arg("-c").arg(script).stdout(Stdio::piped()).output().expect("a shell");
        String::from_utf8(output.stdout).expect("text")
    };
    let output = known("of-ours");
    assert!(output.contains("docker: status=exited exit=137 oom-killed=true error=\n"), "{output}");
    assert!(output.contains("Killed process 41") && output.contains("Xid"), "{output}");
    assert!(!output.contains("pid=42") && !output.contains("process 42") && !output.contains("\nid="), "{output}");
    // On a bare host the kernel log does not tell whose process was killed.
    assert!(known("").contains("Killed process 42"));
}
