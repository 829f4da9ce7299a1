//! The launcher: started detached, waited for, and ended. Start and stop stand side by side.

use std::time::Duration;

use crate::plan::action::Verdict;
use crate::plan::action::container::DETACH;
use crate::plan::logind::{NO_SCOPE, SystemdScope};
use crate::plan::site::Site;
use crate::shell::{Command, Output, quote};

/// Starts the node wrapper of the current run. Doing it twice starts it once.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Where.
    pub site: Site,
    /// Names and values of the secrets: handed over by a file in memory, or by inheritance on a bare host; never in an argument.
    pub secrets: Vec<(String, String)>,
    /// Where the ranks of a bare host start.
    pub scope: SystemdScope,
}

impl Launch {
    pub(super) fn command(&self) -> Command {
        let site = &self.site;
        let (run_dir, pid) = (quote(&site.run_dir()), quote(&format!("{}node.pid", site.run_files())));
        let exports: String = self.secrets.iter().map(|(name, value)| format!("export {name}={}\n", quote(value))).collect();
        let node = quote(&format!("{}/node", site.run_dir()));
        let start = if !site.contained {
            // The ranks begin in the home, unless workdir says otherwise.
            let (tried, words) = (self.scope.tried(), self.scope.words());
            format!("{DETACH}\n{tried}{exports}cd; detach {words}/bin/sh {node}\ncd {run_dir}\n")
        } else if self.secrets.is_empty() {
            format!("D exec -d {} /bin/sh {node} || exit 79\n", quote(&site.container()))
        } else {
            let secret = format!("{}.{}", site.secret(), site.run);
            format!(
                "over() {{ D exec {container} rm -f {secret} >/dev/null 2>&1; exit 79; }}\n\
                 printf %s {} | D exec -i {container} /bin/sh -c {} || over\nD exec -d {container} /bin/sh {node} {secret} || over\n",
                quote(&exports),
                quote(&format!("umask 077; cat >{secret}")),
                container = quote(&site.container()),
            )
        };
        let script = format!(
            "{guard}cd {run_dir} || exit 72\n\
             if [ ! -e {pid} ]; then\n{start}\
             i=0; while [ ! -e {pid} ]; do i=$((i + 1)); [ $i -gt 150 ] && {{ echo 'the launcher did not start' >&2; exit 74; }}; sleep 0.1; done; fi\n\
             exit 0\n",
            guard = site.guard(),
        );
        Command::sh("start the launcher", script, Duration::from_secs(60)).masking(self.secrets.iter().map(|(_, value)| value.clone()))
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        if output.ok() {
            return Verdict::changed("");
        }
        Verdict::failed(
            format!("could not start the launcher: {}", output.complaint()),
            if output.code == NO_SCOPE {
                self.scope.hint(&self.site.host)
            } else if self.site.contained {
                format!("`docker logs {}` on {} may say more", self.site.container(), self.site.host)
            } else {
                String::new()
            },
        )
    }
}

/// Waits until the master's port listens; a launcher that ends meanwhile ends the wait.
#[derive(Debug, Clone)]
pub struct Gate {
    /// The master.
    pub site: Site,
    /// The rendezvous port.
    pub port: u16,
    /// How long.
    pub timeout: Duration,
}

impl Gate {
    pub(super) fn command(&self) -> Command {
        let script = format!(
            "{preamble}\
             listens() {{ if [ -r /proc/net/tcp ]; then cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -qE '^ *[0-9]+: [0-9A-F]+:{hex} [0-9A-F]+:0000 0A'; else netstat -an 2>/dev/null | grep -qE '[.:]{port} .*LISTEN'; fi; }}\n\
             i=0\n\
             while ! listens; do\n\
             [ ! -e {rc} ] || {{ echo \"the master's launcher has ended\" >&2; exit 71; }}\n\
             i=$((i + 1)); [ $i -gt {tries} ] && exit 70\n\
             sleep 0.1\n\
             done\n",
            preamble = self.site.preamble(),
            rc = quote(&format!("{}node.rc", self.site.run_files())),
            hex = format_args!("{:04X}", self.port),
            port = self.port,
            tries = self.timeout.as_millis() / 105,
        );
        Command::sh("wait for the master's port", script, self.timeout + Duration::from_secs(30))
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        match output.code {
            0 => Verdict::fine(format!("port {} listens", self.port)),
            70 => Verdict::failed(
                format!("port {} on {} did not listen within {} s", self.port, self.site.host, self.timeout.as_secs()),
                "read the master's log above; a slow start needs a longer launch.master_timeout",
            ),
            _ => Verdict::failed(output.complaint(), "read the master's log above"),
        }
    }
}

/// Ends every process of the run on one host, and nothing else. Completes by itself once it has arrived, whatever becomes of the connection;
/// works twice, and where nothing was started. Needs no lock: it touches one run only, and a gang must stop at once.
#[derive(Debug, Clone)]
pub struct Stop {
    /// Where.
    pub site: Site,
    /// From TERM to KILL; `None`: KILL at once.
    pub grace: Option<Duration>,
    /// Whether an order ends a run that would go on, which the host remembers: not where the run has failed by itself.
    pub ordered: bool,
    /// Whether the run's directory may be gone while its processes live: then the scripts that end them are written first, under the lock.
    pub lost: bool,
}

impl Stop {
    pub(super) fn command(&self) -> Command {
        let site = &self.site;
        let run_dir = site.run_dir();
        let reap = quote(&format!("{run_dir}/reap"));
        let run = quote(&site.run);
        let words = match self.grace {
            Some(grace) => format!("{reap} stop {run} {}", grace.as_secs()),
            None => format!("{reap} kill {run}"),
        };
        let mark = if self.ordered && !site.old {
            format!("[ ! -d \"$P\" ] || true >{} || exit 73\n", quote(&site.stop_mark()))
        } else {
            String::new()
        };
        let script = if self.lost {
            self.restored(&reap, &words)
        } else if site.contained {
            format!(
                "{preamble}[ -e {reap} ] || exit 0\n\
                 runs=$(D inspect --type container --format '{{{{.State.Running}}}} {{{{.State.Paused}}}}' {container} 2>&1) || \
                 case $runs in *[Nn]'o such container'* | *[Nn]'o such object'*) exit 0 ;; *) printf '%s\\n' \"$runs\" >&2; exit 78 ;; esac\n\
                 case $runs in *'true true') D unpause {container} >/dev/null || exit 79 ;; *'true false') ;; *) exit 0 ;; esac\n\
                 {mark}{inside}\n",
                preamble = site.preamble(),
                container = quote(&site.container()),
                inside = site.inside(&words),
            )
        } else {
            format!("{}[ -e {reap} ] || exit 0\n{mark}{}\n", site.preamble(), site.inside(&words))
        };
        Command::sh("stop the ranks", script, self.grace.unwrap_or_default() + Duration::from_secs(30))
    }

    /// With the scripts of a run that has lost its directory; a clean-up removes them.
    fn restored(&self, reap: &str, words: &str) -> String {
        let dir = self.site.run_dir();
        format!(
            "{guard}[ -e {reap} ] || {{ mkdir -p {} && printf %s {} >{} && printf %s {} >{reap}; }} || exit 73\n/bin/sh {words}\n",
            quote(&dir),
            quote(include_str!("../../../assets/lib.sh")),
            quote(&format!("{dir}/lib")),
            quote(include_str!("../../../assets/reap.sh")),
            guard = self.site.guard(),
        )
    }

    pub(super) fn judge(&self, output: &Output) -> Verdict {
        let text = output.text();
        let left: Vec<&str> = text.lines().filter(|l| l.starts_with("left ")).collect();
        if let Some(first) = left.first() {
            return Verdict::failed(
                format!("{} of the run's processes did not end: {first}", left.len()),
                "a process in state D waits for the kernel or a file server; look at `ps -o pid,stat,wchan,args`",
            );
        }
        match (output.ok(), text.contains("signalled KILL"), text.contains("signalled TERM")) {
            (true, true, _) => Verdict::changed("ended by KILL"),
            (true, false, true) => Verdict::changed("ended by TERM"),
            (true, false, false) => Verdict::fine("nothing ran"),
            // The container ended under the exec: nothing of it can run any more, which the removal verifies.
            (false, ..) if output.code == 137 || output.complaint().contains("is not running") => Verdict::changed("the container ended"),
            (false, ..) => Verdict::failed(format!("could not stop the ranks: {}", output.complaint()), ""),
        }
    }
}
