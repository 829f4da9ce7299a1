//! What only the inside can show: the programs that the job needs, a write into the run directory, the GPUs that are really given.

use std::time::Duration;

use crate::plan::action::Verdict;
use crate::plan::site::Site;
use crate::shell::{Command, Output, quote};

/// Looks from where the ranks will run.
#[derive(Debug, Clone)]
pub struct Prove {
    /// Where.
    pub site: Site,
    /// Programs that must be found.
    pub needs: Vec<String>,
    /// How many GPUs must be seen; 0: not asked.
    pub gpus: u32,
    /// Where the ranks start, if said.
    pub workdir: Option<String>,
}

impl Prove {
    pub(super) fn command(&self) -> Command {
        let run_dir = quote(&self.site.run_dir());
        let mut inner = format!(": >{run_dir}/.probe && rm -f {run_dir}/.probe || echo unwritable\n");
        if let Some(dir) = &self.workdir {
            inner.push_str(&format!("[ -d {0} ] || echo workdir\n[ -d {0} ] && cd {0}\n", quote(dir)));
        }
        for need in &self.needs {
            inner.push_str(&format!("command -v {0} >/dev/null 2>&1 || echo lacks {0}\n", quote(need)));
        }
        if self.gpus > 0 {
            inner.push_str(
                "if command -v nvidia-smi >/dev/null 2>&1; then\n\
                 if command -v timeout >/dev/null 2>&1; then l=$(timeout 20 nvidia-smi -L 2>&1); else l=$(nvidia-smi -L 2>&1); fi\n\
                 echo gpus $(printf '%s\\n' \"$l\" | grep -c '^GPU ') $(printf '%s\\n' \"$l\" | grep -v '^GPU ' | head -n 1)\n\
                 else echo gpus unknown; fi\n",
            );
        }
        inner.push_str("echo looked\n");
        let script = format!("{}{}\n", self.site.preamble(), self.site.inside(&format!("-c {}", quote(&inner))));
        Command::sh("look from inside", script, Duration::from_secs(60))
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        let text = output.text();
        let place = if self.site.contained { "the container" } else { "the host" };
        if !text.lines().any(|l| l == "looked") {
            return Verdict::failed(
                format!("could not look into {place}: {}", output.complaint()),
                format!("`docker logs {}` on {} may say why it ended", self.site.container(), self.site.host),
            );
        }
        if text.lines().any(|l| l == "unwritable") {
            return Verdict::failed(
                format!("the run directory {} cannot be written from inside {place}", self.site.run_dir()),
                "set container.user to one who may write there, or run_dir to a directory that is not squashed",
            );
        }
        if text.lines().any(|l| l == "workdir") {
            let dir = self.workdir.clone().unwrap_or_default();
            return Verdict::failed(format!("there is no directory {dir} in {place}"), "correct `workdir`, or mount it");
        }
        let lacking: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("lacks ")).collect();
        if !lacking.is_empty() {
            return Verdict::failed(
                format!("{} not found in {place}", lacking.join(", ")),
                if self.site.contained { "use an image that has it" } else { "install it on the host, or give its path" },
            );
        }
        self.judge_gpus(&text)
    }

    fn judge_gpus(&self, text: &str) -> Verdict {
        let Some(line) = text.lines().find_map(|l| l.strip_prefix("gpus ")) else { return Verdict::fine("") };
        let (count, complaint) = line.split_once(' ').unwrap_or((line, ""));
        match count.parse::<u32>() {
            Ok(seen) if seen >= self.gpus => Verdict::fine(format!("{seen} GPUs")),
            Ok(seen) => Verdict::failed(
                format!("{seen} of {} GPUs are seen inside{}{complaint}", self.gpus, if complaint.is_empty() { "" } else { ": " }),
                "check `nvidia-smi -L` on the host and nvidia-container-toolkit, or lower launch.nproc_per_node",
            ),
            Err(_) => Verdict::fine("no nvidia-smi inside: the GPUs were not counted"),
        }
    }
}
