//! GPUs and machine of a job's node, by a step beside the ranks: the lines are those of a bare host.

use std::time::Duration;

use super::login_scripts::LOGIN_SH;
use crate::model::remote_command::RemoteCommand;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::host_metrics::metrics_script;
use crate::text::shell_quote::quote;

/// slurmctld may hold srun for some seconds, and a login shell says first where it is.
const START_TIMEOUT: Duration = Duration::from_secs(40);

/// The stream of the values of one of the nodes, through the login node.
pub(crate) fn node_metrics_command(context: &HostContext, job: u64, nodes: usize) -> RemoteCommand {
    let script = format!(
        "name={} root={}\n{LOGIN_SH}job={job} node={} script={}\n{}",
        quote(&context.name),
        quote(&context.run_dir_root),
        quote(&context.host),
        quote(&metrics_script(context, nodes)),
        include_str!("../../../assets/slurm/metrics.sh"),
    );
    RemoteCommand::from_script("stream GPU and host metrics of a node", script, START_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::test_program::write_program;

    #[test]
    fn refused_step_is_reported_with_its_cause() {
        let refused = [
            (
                "echo 'srun: error: Unable to create step for job 5: Job is pending execution' >&2",
                "Unable to create step for job 5: Job is pending execution",
            ),
            ("echo 'srun: fatal: cannot load the plugin' >&2", "cannot load the plugin"),
            ("printf \"srun: unrecognized option '--overlap'\\nTry srun --help\\n\" >&2", "unrecognized option '--overlap'"),
            ("printf '\\nslurmstepd: broken\\n' >&2", "slurmstepd: broken"),
            (":", "exit status 1"),
        ];
        for (srun, cause) in refused {
            let text = stream_with(&format!("#!/bin/sh\n{srun}\nexit 1\n"));
            assert!(text.ends_with(&format!("E srun --overlap: {cause}\n")), "{text}");
        }
    }

    #[test]
    fn stderr_of_the_node_is_dropped() {
        let text = stream_with("#!/bin/sh\nfor last; do :; done\nprintf '%s\\n' \"$last\" | head -n 1\nexit 0\n");
        assert!(text.ends_with("exec 2>/dev/null\n"), "{text}");
    }

    /// What the stream says where `srun` is this script.
    fn stream_with(srun: &str) -> String {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        for (name, text) in [("srun", srun), ("squeue", "#!/bin/sh\n")] {
            write_program(&path(name), text);
        }
        let profile = format!("export PATH={}:$PATH\n", dir.path().display());
        std::fs::write(path(".bash_profile"), profile).expect("written");
        let command = node_metrics_command(&HostContext::new("t5", "n0", "/shared/run"), 5, 1);
        let mut shell = std::process::Command::new("sh");
        let shell =
            shell.arg("-c").arg(&command.script).env("HOME", dir.path()).env("PATH", format!("{}:/usr/bin:/bin", dir.path().display()));
        let output = shell.stdin(std::process::Stdio::null()).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
