//! A person's way into a run on one host: its container, or the bare host, with the run's environment and working directory.
//!
//! What is started is the person's and no part of the run: it does not carry the run's mark, so a stop does not wait for it; in a container
//! it goes with the container.

use std::time::Duration;

use crate::model::remote_command::RemoteCommand;
use crate::plan::action::Issue;
use crate::plan::facts::{ContainerFacts, DockerStatus, HostFacts};
use crate::plan::host_context::HostContext;
use crate::text::shell_quote::{join_quoted, quote};

/// How long it may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// What a rank's process is asked for beside what the plan knows: what launchers give, and nothing that may be a secret.
const RANK_VARIABLE_PATTERN: &str = "RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|GROUP_WORLD_SIZE|ROLE_RANK|ROLE_WORLD_SIZE|MASTER_ADDR|\
                     MASTER_PORT|CUDA_VISIBLE_DEVICES|TORCHELASTIC_[A-Z_]*|JAX_[A-Z_]*";

/// Gives a terminal without a size the one that the host's has. busybox answers nothing for 0 by 0.
const SET_TTY_SIZE_SH: &str = "case $(stty size 2>/dev/null) in ''|'0 0') if [ -n \"$ORCH_SIZE\" ]; then\n\
                    stty rows \"${ORCH_SIZE% *}\" cols \"${ORCH_SIZE#* }\" 2>/dev/null; fi;; esac; unset ORCH_SIZE\n";

#[derive(Debug, Clone)]
pub(crate) struct ExecRequest<'a> {
    /// Where, with the run directory and the current run that the host reports.
    pub context: HostContext,
    /// What the host answered.
    pub facts: &'a HostFacts,
    /// Whose variables are set beside the run's.
    pub rank: Option<u32>,
    /// The command: none is an interactive shell, one word a line for `sh`, several an argument vector.
    pub argv: &'a [String],
    /// `$TERM` of the terminal that it gets.
    pub term: Option<&'a str>,
}

impl<'a> ExecRequest<'a> {
    /// The way in to where `context` is, as the host is found.
    pub(crate) fn new(
        mut context: HostContext,
        facts: &'a HostFacts,
        rank: Option<u32>,
        argv: &'a [String],
        term: Option<&'a str>,
    ) -> ExecRequest<'a> {
        context.run_dir_root.clone_from(&facts.run_dir);
        context.run_id = facts.current_run.clone().unwrap_or_default();
        context.in_container = facts.runs_in_container(context.in_container);
        context.lock_token = None;
        ExecRequest { context, facts, rank, argv, term }
    }

    /// Where it leads, for people.
    pub(crate) fn describe_target(&self) -> String {
        let context = &self.context;
        let rank_prefix = self.rank.map_or_else(String::new, |rank| format!("rank {rank} on "));
        let run = if context.run_id.is_empty() { String::new() } else { format!(" of run {}", context.run_id) };
        match (context.in_container, run.is_empty()) {
            (true, _) => format!("{rank_prefix}{}, in the container {}{run}", context.host, context.container_name()),
            (false, false) => format!("{rank_prefix}{}, with the environment{run}", context.host),
            (false, true) => format!("{rank_prefix}{}, on the host itself", context.host),
        }
    }

    /// What starts it.
    ///
    /// # Errors
    /// Where there is nothing to enter.
    pub(crate) fn build_command(&self) -> Result<RemoteCommand, Issue> {
        let inside = self.inner_script();
        let script = if self.context.in_container {
            self.running_container()?;
            self.docker_exec_script(&inside)
        } else {
            inside
        };
        Ok(RemoteCommand::from_script("open a shell", script, START_TIMEOUT))
    }

    fn running_container(&self) -> Result<&ContainerFacts, Issue> {
        let (name, host) = (&self.context.name, &self.context.host);
        let no = |what| Issue {
            message: what,
            hint: format!("`orchestrate up` creates one; `orchestrate exec --limit {} -- COMMAND` runs on the host itself", quote(host)),
        };
        match self.facts.container() {
            Some(found) if found.status == "running" => Ok(found),
            Some(found) => Err(no(format!("{host}: the container of {name} is not running: it is {}", found.status))),
            None => match &self.facts.docker {
                DockerStatus::Unusable(why) => Err(Issue {
                    message: format!("{host}: docker is not usable: {why}"),
                    hint: format!("`orchestrate check --limit {}` shows more", quote(host)),
                }),
                _ => Err(no(format!("{host}: no container of {name}"))),
            },
        }
    }

    /// The `docker exec` around it. Docker does not signal a program whose client hung up: the script sends HUP to the processes with this
    /// session's mark. The kernel signals only the session's first process, which therefore must not wait in the foreground. Before API 1.42
    /// (Docker 23) the terminal inside starts without a size and docker's client gives up after five tries: the shell inside sets a missing size.
    fn docker_exec_script(&self, inside: &str) -> String {
        let (docker, container) = (self.context.docker_command(), quote(&self.context.container_name()));
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
            inside = quote(&format!("{SET_TTY_SIZE_SH}{inside}")),
            hang_up = quote(hang_up),
        )
    }

    /// What runs where the ranks are.
    fn inner_script(&self) -> String {
        let mut text = String::new();
        if !self.context.run_id.is_empty() {
            let run_dir = self.context.run_dir();
            // What they export can have any name: no variable of ours is used before.
            for file in ["registered", "env"].map(|name| quote(&format!("{run_dir}/{name}"))) {
                text.push_str(&format!("if [ -r {file} ]; then . {file}; fi\n"));
            }
            text.push_str(&format!("R={} F={}\n", quote(&run_dir), quote(&self.context.run_file_prefix())));
            text.push_str(&self.rank_variable_script());
            text.push_str("unset ORCH_RUN_ID\nif [ -n \"$ORCH_WORKDIR\" ]; then cd -- \"$ORCH_WORKDIR\"; fi\n");
        }
        text.push_str("set --\nb=sh; if command -v bash >/dev/null 2>&1; then b=bash; fi\n");
        if !self.context.run_id.is_empty() {
            text.push_str("if [ $b = bash ] && [ -r \"$R/with-setup\" ]; then set -- bash \"$R/with-setup\"; fi\nunset R\n");
        }
        text.push_str(&match self.argv {
            [] => "exec \"$@\" $b\n".to_owned(),
            [line] => format!("exec \"$@\" /bin/sh -c {}\n", quote(line)),
            words => format!("exec \"$@\" {}\n", join_quoted(words)),
        });
        text
    }

    /// The variables that the plan knows of the rank, as defaults of the run's environment; then those of its live process.
    fn rank_variable_script(&self) -> String {
        let Some(rank) = self.rank else { return String::new() };
        let mut known = vec![("RANK", rank.to_string())];
        if let Some(file) = self.facts.run_record() {
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
                quote(&format!("^({RANK_VARIABLE_PATTERN})="))
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_context() -> HostContext {
        HostContext { in_container: true, ..HostContext::new("n", "gpu01", "~/.orchestrate") }
    }

    fn parse_facts(text: &str) -> HostFacts {
        HostFacts::parse(&format!("now 1\nrun_dir /r\n{text}now_end 1\n"))
    }

    #[test]
    fn missing_container_error_suggests_a_command() {
        let no = |text: &str| {
            let facts = parse_facts(text);
            let enter = ExecRequest::new(test_context(), &facts, None, &[], None);
            let trouble = enter.build_command().expect_err("no way in");
            assert!(trouble.hint.contains("`orchestrate "), "{}", trouble.hint);
            trouble.message
        };
        assert_eq!(no("docker 20.10\n"), "gpu01: no container of n");
        let ended = "docker 20.10\ncontainer abc exited 0 0 false sha256:1 /orch-n-gpu01 n gpu01 f00\n";
        assert_eq!(no(ended), "gpu01: the container of n is not running: it is exited");
        assert!(no("docker_error permission denied\n").contains("gpu01"));
    }

    #[test]
    fn tty_is_passed_to_docker_exec() {
        let facts = parse_facts("docker 20.10\ncontainer abc running 7 0 false sha256:1 /orch-n-gpu01 n gpu01 f00\ncurrent run1\n");
        let words = ["a b".to_owned(), "$c".to_owned()];
        let request = |term| ExecRequest::new(HostContext { docker_needs_sudo: true, ..test_context() }, &facts, Some(3), &words, term);
        assert_eq!(request(None).describe_target(), "rank 3 on gpu01, in the container orch-n-gpu01 of run run1");
        let (with, without) =
            (request(Some("xterm")).build_command().expect("a way").script, request(None).build_command().expect("a way").script);
        assert!(
            with.contains("sudo -n docker exec -it -e TERM=xterm ")
                && with.contains("ORCH_SIZE=$size")
                && without.contains("exec sudo -n docker exec -i orch-n-gpu01 ")
        );
        assert!(without.contains("R=/r/n/gpu01.in/run1"), "{without}");
    }

    #[test]
    fn tty_without_size_gets_the_host_size() {
        let shown = |rows, cols, output: &str| {
            let size = portable_pty::PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
            let pair = portable_pty::native_pty_system().openpty(size).expect("a terminal");
            let mut command = portable_pty::CommandBuilder::new("/bin/sh");
            command.args(["-c", &format!("{SET_TTY_SIZE_SH}stty size; echo \"<$ORCH_SIZE>\"")]);
            command.env("ORCH_SIZE", output);
            let mut child = pair.slave.spawn_command(command).expect("a shell");
            drop(pair.slave);
            let lines = std::io::BufRead::lines(std::io::BufReader::new(pair.master.try_clone_reader().expect("its end")));
            let printed: Vec<String> = lines.take(2).map(|line| line.expect("text").trim_end().to_owned()).collect();
            assert!(child.wait().expect("ended").success());
            printed.join(" ")
        };
        assert_eq!(shown(0, 0, "30 100"), "30 100 <>");
        assert_eq!(shown(24, 80, "30 100"), "24 80 <>");
        assert_eq!(shown(24, 80, ""), "24 80 <>");
    }

    #[test]
    fn bare_host_shell_gets_run_and_rank_environment() {
        let dir = tempfile::tempdir().expect("a folder");
        let run = dir.path().join("n/gpu01.in/run1");
        let out = dir.path().join("n/gpu01.out");
        std::fs::create_dir_all(&run).and_then(|()| std::fs::create_dir_all(&out)).expect("made");
        let work = dir.path().display();
        std::fs::write(run.join("env"), format!("export ORCH_RUN_ID=run1 A='it'\\''s' ORCH_MASTER_PORT=29500 ORCH_WORKDIR={work}\n"))
            .expect("written");
        std::fs::write(run.join("registered"), "export A=other COMMIT=1f2e3d\n").expect("written");
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
        let line =
            ["echo \"$A|$COMMIT|$RANK|$LOCAL_RANK|$MASTER_PORT|$CUDA_VISIBLE_DEVICES|$HF_TOKEN|$ORCH_RUN_ID|$PWD\"; exit 9".to_owned()];
        let facts = HostFacts::parse(&text);
        let enter = ExecRequest::new(HostContext { in_container: false, ..test_context() }, &facts, Some(3), &line, None);
        let out =
            std::process::Command::new("/bin/sh").args(["-c", &enter.build_command().expect("a way").script]).output().expect("a shell");
        child.kill().and_then(|()| child.wait()).expect("killed");
        let given = if cfg!(target_os = "linux") { "3|1|4711|0,1" } else { "3||29500|" };
        assert_eq!(String::from_utf8_lossy(&out.stdout), format!("it's|1f2e3d|{given}|||{work}\n"));
        assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(9), ""));
    }
}
