//! The commands that the login node gets: each a script that is bounded by itself, with its answer in `job_report`.

use std::time::Duration;

use crate::model::remote_command::RemoteCommand;
use crate::text::shell_quote::{quote, quote_home};

pub(super) const LOGIN_SH: &str = include_str!("../../../assets/slurm/login.sh");
/// Several programs of 20 s each, and slurmctld may hold every one of them.
const TIMEOUT: Duration = Duration::from_secs(150);
const OUTPUT_LIMIT: usize = 1 << 20;
/// The ranks write into logs of their own: what is longer is repeated complaints.
const MAX_JOB_LOG_BYTES: usize = 4 << 20;

/// Where a name's jobs live on the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobPlace {
    pub(crate) name: String,
    /// `run_dir`, as the inventory says it.
    pub(crate) run_dir: String,
}

/// What is handed over at `submit`.
pub(crate) struct Submission {
    /// The script for sbatch.
    pub(crate) script: String,
    /// The id of the run that the job's first start is.
    pub(crate) run_id: String,
    pub(crate) secrets: Vec<(String, String)>,
}

impl JobPlace {
    /// Asks for everything that is known of the last job.
    pub(crate) fn status_command(&self) -> RemoteCommand {
        self.command("ask SLURM for the job", "", include_str!("../../../assets/slurm/status.sh"))
    }

    /// Asks what a submission needs of the cluster. `image`: a file that the nodes run; `script`: sbatch is asked about it, too.
    pub(crate) fn preflight_command(&self, partition: Option<&str>, image: Option<&str>, script: Option<&str>) -> RemoteCommand {
        let image = image
            .filter(|image| image.starts_with('/') || image.starts_with("~/"))
            .map(|image| quote_home(image, quote))
            .unwrap_or_default();
        let settings =
            format!("wanted={}\nimage={image}\nscript={}\n", quote(partition.unwrap_or_default()), quote(script.unwrap_or_default()));
        self.command("check the cluster", &settings, include_str!("../../../assets/slurm/preflight.sh"))
    }

    /// Asks for every start of every job of the name, and the nodes of each.
    pub(crate) fn starts_command(&self) -> RemoteCommand {
        self.command("list the runs of all jobs", "", include_str!("../../../assets/slurm/starts.sh"))
    }

    /// Submits the job, unless one lives.
    pub(crate) fn submit_command(&self, submission: &Submission) -> RemoteCommand {
        let lines: String = submission.secrets.iter().map(|(name, value)| format!("export {name}={}\n", quote(value))).collect();
        let settings = format!("script={}\nsecrets={}\nrun={}\n", quote(&submission.script), quote(&lines), quote(&submission.run_id));
        let command = self.command("submit the job", &settings, include_str!("../../../assets/slurm/submit.sh"));
        // The script contains them quoted twice.
        command.with_masked_values(submission.secrets.iter().flat_map(|(_, value)| [quote(value), value.clone()]))
    }

    /// Cancels the live job.
    pub(crate) fn cancel_command(&self) -> RemoteCommand {
        self.command("cancel the job", "", include_str!("../../../assets/slurm/cancel.sh"))
    }

    /// Prints the end of a job's own log, which is what its script has said.
    pub(crate) fn job_log_command(&self, job: u64) -> RemoteCommand {
        let script = format!(
            "f={}/{name}/{name}-{job}.out\nif [ -f \"$f\" ] && [ ! -L \"$f\" ]; then tail -c {MAX_JOB_LOG_BYTES} \"$f\"; fi\n",
            quote_home(&self.run_dir, quote),
            name = quote(&self.name)
        );
        RemoteCommand::from_script("read the job's log", script, TIMEOUT).with_output_limit(2 * MAX_JOB_LOG_BYTES)
    }

    /// Removes the files of jobs that have ended. `fetched`: the runs whose logs this laptop has, and their jobs; other runs are kept.
    pub(crate) fn clean_command(&self, fetched: &[(u64, String)]) -> RemoteCommand {
        let fetched: Vec<String> = fetched.iter().map(|(job, run)| format!("{job}:{run}")).collect();
        let settings = format!("fetched={}\n", quote(&fetched.join(" ")));
        self.command("remove the job's files", &settings, include_str!("../../../assets/slurm/clean.sh"))
    }

    fn command(&self, title: &str, settings: &str, body: &str) -> RemoteCommand {
        let script = format!("name={}\nroot={}\n{settings}{LOGIN_SH}{body}", quote(&self.name), quote_home(&self.run_dir, quote));
        RemoteCommand::from_script(title, script, TIMEOUT).with_output_limit(OUTPUT_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submission_carries_script_and_secrets_as_data() {
        let place = JobPlace { name: "t5".to_owned(), run_dir: "~/a b".to_owned() };
        let submission = Submission {
            script: "#!/bin/bash\necho '$x'\n".to_owned(),
            run_id: "20261123-200000-000c".to_owned(),
            secrets: vec![("HF_TOKEN".to_owned(), "it's".to_owned())],
        };
        let command = place.submit_command(&submission);
        assert!(
            command.script.starts_with("name=t5\nroot=\"$HOME\"/'a b'\nscript='#!/bin/bash\necho '\\''$x'\\''\n'\n"),
            "{}",
            command.script
        );
        assert!(!command.masked_script().contains("it'\\''s"), "secrets are masked where commands are shown");
    }
}
