//! The way back: the container or the keeper, the logs, the run directory, and the proof that nothing is left.
//!
//! Planned from what is found, by labels and paths that are ours, never by a pattern; every script works twice.

use std::time::Duration;

use crate::plan::action::{Seen, Verdict};
use crate::plan::facts::HostFacts;
use crate::plan::site::Site;
use crate::shell::{Command, Output, quote};

/// Removes the containers of this name and host, or ends a bare host's keeper.
#[derive(Debug, Clone)]
pub struct Remove {
    /// Where.
    pub site: Site,
}

impl Remove {
    pub(super) fn title(&self) -> &'static str {
        if self.site.contained { "remove the container" } else { "end the keeper" }
    }

    pub(super) fn observe(&self, facts: &HostFacts) -> Seen {
        if facts.containers.is_empty() && facts.keeper.is_none() {
            Seen::Satisfied("there is none".to_owned())
        } else {
            Seen::Needed(String::new())
        }
    }

    pub(super) fn command(&self) -> Command {
        let keeper = format!(
            "{lib}\nif {{ read -r p s <\"$H/keeper.pid\"; }} 2>/dev/null && [ -n \"$s\" ] && [ \"$(born \"$p\")\" = \"$s\" ]; then kill \"$p\" 2>/dev/null\n\
             i=0; while [ \"$(born \"$p\")\" = \"$s\" ]; do i=$((i + 1)); [ $i -gt 100 ] && kill -9 \"$p\" 2>/dev/null; [ $i -gt 120 ] && exit 1; sleep 0.1; done; fi\n",
            lib = include_str!("../../../assets/lib.sh"),
        );
        let containers = format!(
            "ids=$(D ps -a -q --no-trunc --filter label=orchestrate.name={} --filter label=orchestrate.host={}) || exit 78\n\
             for i in $ids; do D rm -f \"$i\" >/dev/null || exit 78; echo removed; done\n",
            quote(&self.site.name),
            quote(&self.site.host),
        );
        let script = format!("{}{keeper}{}", self.site.guard(), if self.site.contained { containers.as_str() } else { "" });
        Command::sh(self.title(), script, Duration::from_secs(120))
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        if output.ok() {
            Verdict::changed("removed")
        } else {
            Verdict::failed(format!("could not {}: {}", self.title(), output.complaint()), "")
        }
    }
}

/// Fetches what the laptop lacks of the current run's logs and exits.
#[derive(Debug, Clone)]
pub struct Fetch {
    /// Where.
    pub site: Site,
    /// Which run.
    pub run: String,
}

/// Removes every run directory of this name and host, the lock last.
///
/// A directory gets another name before it is emptied: whoever still writes into it by its path, as a kept container's keeper does once a
/// second, can put nothing back while `rm` looks away. A follower goes along with it, and gets 5 s to tell how the run ended.
#[derive(Debug, Clone)]
pub struct Clean {
    /// Where.
    pub site: Site,
    /// Only this run's directory is removed and the rest stays for the next one (a kept container).
    pub only_run: Option<String>,
}

impl Clean {
    pub(super) fn command(&self) -> Command {
        let site = &self.site;
        let mut script = site.guard();
        script.push_str(
            "followed() { for f in \"$1\"/following.*; do [ -e \"$f\" ] && [ -d \"/proc/${f##*.}\" ] && return 0; done; return 1; }\n\
             gone() { [ ! -e \"$H/$1\" ] || mv \"$H/$1\" \"$H/.gone.$1\" || return 1\n\
             i=0; while [ $i -lt 25 ] && followed \"$H/.gone.$1\"; do i=$((i + 1)); sleep 0.2; done\n\
             i=0; until rm -rf \"$H/.gone.$1\" 2>/dev/null; do i=$((i + 1)); [ $i -gt 20 ] && { rm -rf \"$H/.gone.$1\"; return; }; sleep 0.2; done; }\n\
             rm -rf \"$H\"/.gone.* || exit 1\n",
        );
        match &self.only_run {
            Some(run) => script.push_str(&format!(
                "gone {run} || exit 1\n[ \"$(cat \"$H/current\" 2>/dev/null)\" = {run} ] && rm -f \"$H/current\"\nexit 0\n",
                run = quote(run)
            )),
            None => script.push_str(&format!(
                "{}for e in \"$H\"/* \"$H\"/.[!.]*; do\n\
                 case $e in */lock | */lock.beat | */'*' | */'.[!.]*') continue ;; esac\n\
                 if [ -d \"$e\" ] && [ ! -L \"$e\" ]; then gone \"${{e##*/}}\"; else rm -f \"$e\"; fi || failed=1\n\
                 done\n\
                 [ -z \"$failed\" ]\n",
                site.forget_logins()
            )),
        }
        Command::sh("remove the run directory", script, Duration::from_secs(120))
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        if output.ok() {
            Verdict::changed("removed")
        } else {
            Verdict::failed(
                format!("could not remove {}: {}", self.site.dir(), output.complaint()),
                format!("remove it by hand on {}: `sudo rm -rf {}`", self.site.host, self.site.dir()),
            )
        }
    }
}

/// Looks whether a container, a process or a file of this name is left.
#[derive(Debug, Clone)]
pub struct Verify {
    /// Where.
    pub site: Site,
    /// The runs whose processes are looked for.
    pub runs: Vec<String>,
}

impl Verify {
    pub(super) fn command(&self) -> Command {
        let site = &self.site;
        let mut script = site.preamble();
        if site.contained {
            script.push_str(&format!(
                "D ps -a --filter label=orchestrate.name={} --filter label=orchestrate.host={} --format 'left container {{{{.Names}}}} ({{{{.Status}}}})' || echo 'left container: docker does not answer'\n",
                quote(&site.name),
                quote(&site.host),
            ));
        }
        for run in &self.runs {
            script.push_str(&format!(
                "for e in $(grep -lsF {} /proc/[0-9]*/environ 2>/dev/null); do p=${{e#/proc/}}; p=${{p%/environ}}; \
                 s=$(cut -d ' ' -f 3 \"/proc/$p/stat\" 2>/dev/null); case $s in Z | X | '') ;; *) echo \"left process $p $(tr '\\0' ' ' <\"/proc/$p/cmdline\" 2>/dev/null | cut -c1-100)\" ;; esac; done\n",
                quote(&format!("ORCH_RUN_ID={run}"))
            ));
        }
        script.push_str(
            "for e in \"$H\"/* \"$H\"/.[!.]*; do case $e in */lock | */lock.beat | */'*' | */'.[!.]*') ;; *) echo \"left file $e\" ;; esac; done\n",
        );
        script.push_str(&format!(
            "for m in {}; do for l in \"$m\"/{}.??????; do [ -O \"$l\" ] && echo \"left login $l\"; done; done\necho looked\n",
            Site::MEMORY,
            site.login()
        ));
        Command::sh("verify that nothing is left", script, Duration::from_secs(60))
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        let text = output.text();
        let left: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("left ")).collect();
        if !text.lines().any(|l| l == "looked") {
            return Verdict::failed(format!("could not look: {}", output.complaint()), "");
        }
        if left.is_empty() { Verdict::fine("nothing is left") } else { Verdict::failed(format!("still there: {}", left.join("; ")), "") }
    }
}
