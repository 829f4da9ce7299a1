//! The run directory with everything that a launch reads: made by the ssh user before the container starts, so that he can remove it.

use std::time::Duration;

use crate::plan::action::Verdict;
use crate::plan::launcher::Start;
use crate::plan::run::RunFile;
use crate::plan::site::{Site, file};
use crate::shell::{Command, Output, quote};

/// Writes a new run's directory and makes it the current one.
#[derive(Debug, Clone)]
pub struct Prepare {
    /// Where.
    pub site: Site,
    /// What the launcher and the workers are given.
    pub start: Start,
    /// What the run says of itself.
    pub run: RunFile,
    /// Seconds after which a keeper that saw no launcher ends.
    pub start_timeout: u64,
    /// The image whose ENTRYPOINT the ranks run through.
    pub entrypoint: Option<String>,
    /// Whether the container stays when the run has ended.
    pub keep: bool,
    /// The longest that a log may be, bytes.
    pub log_max: u64,
}

impl Prepare {
    /// The names of the files that it writes into the directory of what the run is given; `keeper` and `current` lie above it, the record in the private one.
    pub fn files(&self) -> Vec<String> {
        let fixed = ["lib", "node", "worker", "reap", "append", "pipe", "env", "argv", "worker.argv"].map(str::to_owned);
        let own = self.start.files.keys().cloned();
        let through = self.entrypoint.iter().map(|_| "entrypoint".to_owned());
        fixed.into_iter().chain(own).chain(["settings"].map(str::to_owned)).chain(through).collect()
    }

    pub(super) fn command(&self) -> Command {
        let site = &self.site;
        let dir = site.run_dir();
        let mut script = site.guard();
        script.push_str(&site.forget_logins());
        script.push_str("umask 022\n");
        let quoted = quote(&dir);
        // The record first: a launch that is cut off here is found by it.
        let json = serde_json::to_string_pretty(&self.run).unwrap_or_default();
        script.push_str(&file(&site.record(), &format!("{json}\n"), "600"));
        script.push_str(&format!(
            "b=; {{ read -r b </proc/sys/kernel/random/boot_id; }} 2>/dev/null; printf '%s\\n' \"$b\" >{} || exit 73\n",
            quote(&site.boot_file())
        ));
        script.push_str(&format!(
            "rm -rf {quoted} && mkdir -p \"$P\" \"$OUT\" {quoted} && chmod 700 \"$P\" && chmod 777 \"$OUT\" && chmod 755 \"$IN\" {quoted} || exit 73\n"
        ));
        // Nothing reads these files before `current` names the run: no need to write them aside and rename.
        let mut add = |name: &str, text: &str| {
            script.push_str(&format!("printf %s {} >{} || exit 73\n", quote(text), quote(&format!("{dir}/{name}"))))
        };
        add("lib", include_str!("../../../assets/lib.sh"));
        add("node", include_str!("../../../assets/node.sh"));
        add("worker", include_str!("../../../assets/worker.sh"));
        add("reap", include_str!("../../../assets/reap.sh"));
        add("append", include_str!("../../../assets/append.sh"));
        add("pipe", &format!("log_max={}\n{}", self.log_max, include_str!("../../../assets/pipe.sh")));
        add("env", &environment(&self.start));
        add("argv", &arguments(&self.start.argv));
        add("worker.argv", &arguments(&self.start.worker));
        for (name, text) in &self.start.files {
            add(name, text);
        }
        let settings = format!(
            "stop_grace={}\nstart_timeout={}\nfail_fast={}\nlease=0\n",
            self.run.stop_grace,
            self.start_timeout,
            u8::from(!self.run.restarts)
        );
        add("settings", &settings);
        if let Some(image) = &self.entrypoint {
            script.push_str(&entrypoint(image, &quoted));
        }
        script.push_str(&file(&format!("{}/keeper", site.in_dir()), include_str!("../../../assets/keeper.sh"), "644"));
        script.push_str(if self.keep { ": >\"$IN/keep\" && : >\"$P/keep\" || exit 73\n" } else { "rm -f \"$IN/keep\" \"$P/keep\"\n" });
        // The truth last: what names a run that is not whole could not be torn down.
        for dir in [site.in_dir(), site.private_dir()] {
            script.push_str(&file(&format!("{dir}/current"), &format!("{}\n", site.run), "644"));
        }
        Command::sh("write the run directory", script, Duration::from_secs(30))
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        if output.ok() {
            return Verdict::changed(self.site.run_dir());
        }
        let says = output.complaint();
        if output.code == NO_ENTRYPOINT {
            return Verdict::failed(
                format!("the ranks cannot run through the image's ENTRYPOINT: {says}"),
                "leave container.entrypoint out, or use an image whose ENTRYPOINT is a list of words that runs what follows it",
            );
        }
        let hint = if says.contains("No space left") {
            format!("free space under {} on {}", self.site.base, self.site.host)
        } else {
            format!("check that {} can be written on {}, or set run_dir", self.site.base, self.site.host)
        };
        Verdict::failed(format!("could not write {}: {says}", self.site.run_dir()), hint)
    }
}

/// The exit status where an image's ENTRYPOINT is of no use.
const NO_ENTRYPOINT: i32 = 76;

/// Writes a file that puts the words of the image's ENTRYPOINT before the positional parameters of the shell that reads it. One in shell form
/// takes no words: nothing could run through it.
fn entrypoint(image: &str, dir: &str) -> String {
    format!(
        "e=$(D image inspect --format '{{{{range .Config.Entrypoint}}}}{{{{println .}}}}{{{{end}}}}' {} | sed '/^$/d') || exit 78\n\
         case $e in '') echo 'it has none' >&2; exit {NO_ENTRYPOINT} ;;\n\
         */sh'\n'-c'\n'*) echo 'it is in shell form and takes no words' >&2; exit {NO_ENTRYPOINT} ;; esac\n\
         {{ printf 'set -- '; printf '%s\\n' \"$e\" | sed \"s/'/'\\\\\\\\''/g; s/.*/'&'/\" | tr '\\n' ' '; printf '\"$@\"\\n'; }} >{dir}/entrypoint || exit 73\n",
        quote(image)
    )
}

/// A file that makes the words the positional parameters of the shell that reads it.
fn arguments(words: &[String]) -> String {
    let mut text = "set --".to_owned();
    for word in words {
        text.push(' ');
        text.push_str(&quote(word));
    }
    text.push('\n');
    text
}

/// A file that exports the variables of the shell that reads it; a default only where the variable is not set, by the image for one.
fn environment(start: &Start) -> String {
    let fixed = start.env.iter().map(|(name, value)| format!("export {name}={}\n", quote(value)));
    let defaults = start.defaults.iter().map(|(name, value)| format!("[ -n \"${{{name}+set}}\" ] || export {name}={}\n", quote(value)));
    fixed.chain(defaults).collect()
}
