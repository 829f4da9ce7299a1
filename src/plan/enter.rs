//! A person's way into a run on one host: its container, or the bare host, with the run's environment and working directory.
//!
//! Uses `shell`, sites and facts. What is started is the person's and no part of the run: it does not carry the run's mark, so a stop does not
//! wait for it; in a container it goes with the container.

use std::time::Duration;

use crate::plan::action::Trouble;
use crate::plan::facts::{Docker, Found, HostFacts};
use crate::plan::site::Site;
use crate::shell::{Command, join, quote};

/// How long it may take to start.
const START: Duration = Duration::from_secs(30);
/// What a rank's process is asked for beside what the plan knows: what launchers give, and nothing that may be a secret.
const GIVEN: &str = "RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|GROUP_WORLD_SIZE|ROLE_RANK|ROLE_WORLD_SIZE|MASTER_ADDR|\
                     MASTER_PORT|CUDA_VISIBLE_DEVICES|TORCHELASTIC_[A-Z_]*|JAX_[A-Z_]*";

/// Gives a terminal without a size the one that the host's has. busybox answers nothing for 0 by 0.
const SIZE: &str = "case $(stty size 2>/dev/null) in ''|'0 0') if [ -n \"$ORCH_SIZE\" ]; then\n\
                    stty rows \"${ORCH_SIZE% *}\" cols \"${ORCH_SIZE#* }\" 2>/dev/null; fi;; esac; unset ORCH_SIZE\n";

/// The way in.
#[derive(Debug, Clone)]
pub struct Enter<'a> {
    /// Where, with the run directory that the host told and its current run.
    pub site: Site,
    /// What the host answered.
    pub facts: &'a HostFacts,
    /// Whose variables are set beside the run's.
    pub rank: Option<u32>,
    /// The command: none is a shell to talk with, one word a line for `sh`, several an argument vector.
    pub words: &'a [String],
    /// `$TERM` of the terminal that it gets.
    pub term: Option<&'a str>,
}

impl<'a> Enter<'a> {
    /// The way in to where `site` is, as the host is found.
    pub fn new(mut site: Site, facts: &'a HostFacts, rank: Option<u32>, words: &'a [String], term: Option<&'a str>) -> Enter<'a> {
        site.base.clone_from(&facts.run_dir);
        site.run = facts.current.clone().unwrap_or_default();
        site.contained = facts.contained(site.contained);
        site.old = facts.old;
        site.token = None;
        Enter { site, facts, rank, words, term }
    }

    /// Where it leads, for people.
    pub fn place(&self) -> String {
        let site = &self.site;
        let who = self.rank.map_or_else(String::new, |rank| format!("rank {rank} on "));
        let run = if site.run.is_empty() { String::new() } else { format!(" of run {}", site.run) };
        match (site.contained, run.is_empty()) {
            (true, _) => format!("{who}{}, in the container {}{run}", site.host, site.container()),
            (false, false) => format!("{who}{}, with the environment{run}", site.host),
            (false, true) => format!("{who}{}, the host itself", site.host),
        }
    }

    /// What starts it.
    ///
    /// # Errors
    /// Where there is nothing to enter.
    pub fn command(&self) -> Result<Command, Trouble> {
        let inside = self.inside();
        let script = if self.site.contained {
            self.container()?;
            self.through_docker(&inside)
        } else {
            inside
        };
        Ok(Command::sh("open a shell", script, START))
    }

    fn container(&self) -> Result<&Found, Trouble> {
        let (name, host) = (&self.site.name, &self.site.host);
        let no = |what| Trouble {
            what,
            hint: format!("`orchestrate up` makes one; `orchestrate exec --limit {} -- COMMAND` runs on the host itself", quote(host)),
        };
        match self.facts.container() {
            Some(found) if found.status == "running" => Ok(found),
            Some(found) => Err(no(format!("{host}: the container of {name} does not run: it is {}", found.status))),
            None => match &self.facts.docker {
                Docker::Unusable(why) => Err(Trouble {
                    what: format!("{host}: docker cannot be used: {why}"),
                    hint: format!("`orchestrate check --limit {}` says more", quote(host)),
                }),
                _ => Err(no(format!("{host}: there is no container of {name}"))),
            },
        }
    }

    /// The words of docker around it. Docker leaves a program alone whose client hung up: what carries this talk's mark is told so. The kernel
    /// tells only the session's first process, which therefore must not be one that waits in the foreground. Before API 1.42 (Docker 23) the
    /// terminal inside begins without a size and docker's client gives up after five tries: what is started there sets it where it is missing.
    fn through_docker(&self, inside: &str) -> String {
        let (docker, container) = (self.site.docker(), quote(&self.site.container()));
        let path = "PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH\n";
        let Some(term) = self.term else {
            return format!("{path}exec {docker} exec -i {container} /bin/sh -c {}\n", quote(inside));
        };
        // A shell that is just starting may miss the signal; what ignores it is left alone.
        let hang_up = "for n in 1 2 3 4 5; do\n\
             l=\n\
             for e in $(grep -ls \"ORCH_SHELL=$0\" /proc/[0-9]*/environ); do e=${e#/proc/}; kill -HUP \"${e%/environ}\" && l=1; done\n\
             [ -n \"$l\" ] || [ $n = 1 ] || break\n\
             sleep 1\n\
             done";
        format!(
            "{path}mark=$$.$(date +%s) gone= p=\n\
             exec 3<&0\n\
             size=$(stty size <&3 2>/dev/null)\n\
             trap 'gone=1; [ -z \"$p\" ] || kill -HUP \"$p\"' HUP\n\
             {docker} exec -it -e {term} -e \"ORCH_SHELL=$mark\" -e \"ORCH_SIZE=$size\" {container} /bin/sh -c {inside} <&3 3<&- & p=$!\n\
             [ -z \"$gone\" ] || kill -HUP \"$p\"\n\
             wait \"$p\"; rc=$?\n\
             if [ -n \"$gone\" ]; then {docker} exec {container} /bin/sh -c {hang_up} \"$mark\" </dev/null >/dev/null 2>&1; fi\nexit $rc\n",
            term = quote(&format!("TERM={term}")),
            inside = quote(&format!("{SIZE}{inside}")),
            hang_up = quote(hang_up),
        )
    }

    /// What runs where the ranks are.
    fn inside(&self) -> String {
        let mut text = String::new();
        if !self.site.run.is_empty() {
            text.push_str(&format!(
                "R={} F={}\nif [ -r \"$R/env\" ]; then . \"$R/env\"; fi\n",
                quote(&self.site.run_dir()),
                quote(&self.site.run_files())
            ));
            text.push_str(&self.rank_variables());
            text.push_str("unset ORCH_RUN_ID\nif [ -n \"$ORCH_WORKDIR\" ]; then cd -- \"$ORCH_WORKDIR\"; fi\n");
        }
        text.push_str("set --\nb=sh; if command -v bash >/dev/null 2>&1; then b=bash; fi\n");
        if !self.site.run.is_empty() {
            text.push_str("if [ $b = bash ] && [ -r \"$R/with-setup\" ]; then set -- bash \"$R/with-setup\"; fi\nunset R\n");
        }
        text.push_str(&match self.words {
            [] => "exec \"$@\" $b\n".to_owned(),
            [line] => format!("exec \"$@\" /bin/sh -c {}\n", quote(line)),
            words => format!("exec \"$@\" {}\n", join(words)),
        });
        text
    }

    /// What the plan knows of the rank, where the run's own environment does not say it; then what its process was given, while it lives.
    fn rank_variables(&self) -> String {
        let Some(rank) = self.rank else { return String::new() };
        let mut known = vec![("RANK", rank.to_string())];
        if let Some(file) = self.facts.run_file() {
            let own = file.ranks.iter().find(|info| info.rank == rank);
            known.extend(own.map(|info| ("LOCAL_RANK", info.local_rank.to_string())));
            known.extend(own.map(|info| ("LOCAL_WORLD_SIZE", file.ranks.iter().filter(|r| r.host == info.host).count().to_string())));
            known.extend((file.world_size > 0).then(|| ("WORLD_SIZE", file.world_size.to_string())));
        }
        let mut text: String = known.iter().map(|(name, value)| format!(": \"${{{name}:={value}}}\"; export {name}\n")).collect();
        for (name, from) in [("NODE_RANK", "ORCH_NODE_RANK"), ("MASTER_ADDR", "ORCH_MASTER_ADDR"), ("MASTER_PORT", "ORCH_MASTER_PORT")] {
            text.push_str(&format!(": \"${{{name}:=${from}}}\"; export {name}\n"));
        }
        let living =
            self.facts.ranks.iter().filter(|(number, _, exit)| *number == rank && exit.is_none()).map(|(_, restart, _)| *restart).max();
        if let Some(restart) = living {
            text.push_str(&format!(
                "{{ read -r p rest <\"${{F}}rank-{rank}.{restart}.pid\"; }} 2>/dev/null && case $p in '' | *[!0-9]*) false ;; esac && given=$(tr '\\0' '\\n' <\"/proc/$p/environ\" | \
                 grep -E {}) 2>/dev/null && while IFS= read -r v; do export \"$v\"; done <<GIVEN\n$given\nGIVEN\nunset p rest given v F\n",
                quote(&format!("^({GIVEN})="))
            ));
        }
        text
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the proof is a real shell")]
mod tests {
    use super::*;

    fn site() -> Site {
        Site {
            name: "n".to_owned(),
            host: "gpu01".to_owned(),
            run: String::new(),
            base: "~/.orchestrate".to_owned(),
            sudo: false,
            engine: None,
            contained: true,
            token: None,
            old: false,
            log_max: 0,
            ranks: 0,
        }
    }

    fn facts(text: &str) -> HostFacts {
        HostFacts::read(&format!("now 1\nrun_dir /r\n{text}now_end 1\n"))
    }

    #[test]
    fn what_cannot_be_entered_is_said_with_the_next_command() {
        let no = |text: &str| {
            let facts = facts(text);
            let enter = Enter::new(site(), &facts, None, &[], None);
            let trouble = enter.command().expect_err("no way in");
            assert!(trouble.hint.contains("`orchestrate "), "{}", trouble.hint);
            trouble.what
        };
        assert_eq!(no("docker 20.10\n"), "gpu01: there is no container of n");
        let ended = "docker 20.10\ncontainer abc exited 0 0 false sha256:1 /orch-n-gpu01 n gpu01 f00\n";
        assert_eq!(no(ended), "gpu01: the container of n does not run: it is exited");
        assert!(no("docker_error permission denied\n").contains("gpu01"));
    }

    #[test]
    fn the_way_in_is_told_and_a_terminal_is_dockers_too() {
        let facts = facts("docker 20.10\ncontainer abc running 7 0 false sha256:1 /orch-n-gpu01 n gpu01 f00\ncurrent run1\n");
        let words = ["a b".to_owned(), "$c".to_owned()];
        let way = |term| Enter::new(Site { sudo: true, ..site() }, &facts, Some(3), &words, term);
        assert_eq!(way(None).place(), "rank 3 on gpu01, in the container orch-n-gpu01 of run run1");
        let (with, without) = (way(Some("xterm")).command().expect("a way").script, way(None).command().expect("a way").script);
        assert!(
            with.contains("sudo -n docker exec -it -e TERM=xterm ")
                && with.contains("ORCH_SIZE=$size")
                && without.contains("exec sudo -n docker exec -i orch-n-gpu01 ")
        );
        assert!(without.contains("R=/r/n/gpu01.in/run1"), "{without}");
    }

    #[test]
    fn a_terminal_without_a_size_gets_the_hosts_and_another_keeps_its_own() {
        let shown = |rows, cols, told: &str| {
            let size = portable_pty::PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
            let pair = portable_pty::native_pty_system().openpty(size).expect("a terminal");
            let mut command = portable_pty::CommandBuilder::new("/bin/sh");
            command.args(["-c", &format!("{SIZE}stty size; echo \"<$ORCH_SIZE>\"")]);
            command.env("ORCH_SIZE", told);
            let mut child = pair.slave.spawn_command(command).expect("a shell");
            drop(pair.slave);
            let lines = std::io::BufRead::lines(std::io::BufReader::new(pair.master.try_clone_reader().expect("its end")));
            let said: Vec<String> = lines.take(2).map(|line| line.expect("text").trim_end().to_owned()).collect();
            assert!(child.wait().expect("ended").success());
            said.join(" ")
        };
        assert_eq!(shown(0, 0, "30 100"), "30 100 <>");
        assert_eq!(shown(24, 80, "30 100"), "24 80 <>");
        assert_eq!(shown(24, 80, ""), "24 80 <>");
    }

    #[test]
    fn a_bare_shell_has_the_runs_environment_and_the_ranks_own() {
        let dir = tempfile::tempdir().expect("a folder");
        let run = dir.path().join("n/gpu01.in/run1");
        let out = dir.path().join("n/gpu01.out");
        std::fs::create_dir_all(&run).and_then(|()| std::fs::create_dir_all(&out)).expect("made");
        let work = dir.path().display();
        std::fs::write(run.join("env"), format!("export ORCH_RUN_ID=run1 A='it'\\''s' ORCH_MASTER_PORT=29500 ORCH_WORKDIR={work}\n"))
            .expect("written");
        // A process of the rank: what it was given counts, and not what else it has.
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs([("RANK", "3"), ("LOCAL_RANK", "1"), ("MASTER_PORT", "4711"), ("HF_TOKEN", "secret"), ("CUDA_VISIBLE_DEVICES", "0,1")])
            .spawn()
            .expect("sleep");
        std::fs::write(out.join("run1.rank-3.0.pid"), format!("{} 1 2 3\n", child.id())).expect("written");
        let text = format!("now 1\nrun_dir {work}\ncurrent run1\nrank rank-3.0 running\nnow_end 1\n");
        let line = ["echo \"$A|$RANK|$LOCAL_RANK|$MASTER_PORT|$CUDA_VISIBLE_DEVICES|$HF_TOKEN|$ORCH_RUN_ID|$PWD\"; exit 9".to_owned()];
        let facts = HostFacts::read(&text);
        let enter = Enter::new(Site { contained: false, ..site() }, &facts, Some(3), &line, None);
        let out = std::process::Command::new("/bin/sh").args(["-c", &enter.command().expect("a way").script]).output().expect("a shell");
        child.kill().and_then(|()| child.wait()).expect("killed");
        let given = if cfg!(target_os = "linux") { "3|1|4711|0,1" } else { "3||29500|" };
        assert_eq!(String::from_utf8_lossy(&out.stdout), format!("it's|{given}|||{work}\n"));
        assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(9), ""));
    }
}
