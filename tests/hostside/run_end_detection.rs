//! Detection of a run's end, and states that only look like one: hidden containers and processes, dead keepers, rebooted hosts, hung daemons.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use orchestrate::plan::action::launch::StopRanks;
use orchestrate::plan::action::{Action, Execution};
use orchestrate::plan::facts_request::{FactsRequest, facts_command};
use orchestrate::plan::host_context::HostContext;
use orchestrate::plan::protocol::log_frames;
use orchestrate::plan::protocol::log_frames::LogStreamPurpose;

use crate::{ChildGuard, TEST_TIMEOUT, TestHost, read_asset, wait_until, write_program};

/// A pid above the kernel's limit, which no process has.
const UNUSED_PID: u32 = 99_999_999;

fn host_context_for(host: &TestHost, contained: bool) -> HostContext {
    HostContext {
        run_id: "run1".to_owned(),
        in_container: contained,
        ..HostContext::new(".", "h", host.dir.path().to_str().expect("text").to_owned())
    }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id").trim_end().to_owned()
}

/// The start time of a process in ticks since boot.
fn process_start_ticks(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, rest) = stat.rsplit_once(") ").expect("a stat");
    rest.split(' ').nth(19).expect("a start").to_owned()
}

/// A process that lives until the test ends.
fn spawn_sleeper() -> ChildGuard {
    ChildGuard(Command::new("/bin/sleep").arg("1000").spawn().expect("a process"))
}

/// A follower of `run1` with the script of the plan.
struct FollowerProcess<'a> {
    host: &'a TestHost,
    child: ChildGuard,
}

impl TestHost {
    /// Fakes docker with the file `says`: the first line is its exit status or `hangs`, the rest its output. It records its calls.
    fn set_docker_answer(&self, expected: &str) {
        self.write_file("says", expected);
        let dir = self.path("").display().to_string();
        let script = format!(
            "#!/bin/sh\necho \"$*\" >>'{dir}/asked'\n{{ read -r code; [ \"$code\" != hangs ] || exec /bin/sleep 1000; cat; }} <'{dir}/says'\nexit \"$code\"\n"
        );
        write_program(&self.path("bin/docker"), &script);
        // Shortens every timeout to five seconds.
        write_program(&self.path("bin/timeout"), "#!/bin/sh\nshift\nexec /usr/bin/timeout 5 \"$@\"\n");
    }

    fn docker_calls(&self) -> String {
        std::fs::read_to_string(self.path("asked")).unwrap_or_default()
    }

    /// Records the launcher and one rank as the wrappers do.
    fn record_launcher_and_rank(&self, launcher: u32, start: &str) {
        for name in ["node", "rank-0.0"] {
            self.write_file(&format!("h.out/run1.{name}.pid"), &format!("{launcher} {start} 1000.5 {}\n", boot_id()));
        }
        self.write_file("h.private/run1.boot", &format!("{}\n", boot_id()));
    }

    fn start_run_follower(&self, contained: bool) -> FollowerProcess<'_> {
        let script = log_frames::log_stream_command(&host_context_for(self, contained), &[], 1, LogStreamPurpose::Supervise, true).script;
        let output = std::fs::File::create(self.path("said")).expect("a file");
        let mut child =
            ChildGuard(self.shell_command().args(["-c", &script]).stdin(Stdio::piped()).stdout(output).spawn().expect("a shell"));
        // Acknowledges more bytes than the follower will ever send.
        child.0.stdin.as_mut().expect("its input").write_all(b"100000000 100000000\n").expect("acknowledged");
        FollowerProcess { host: self, child }
    }
}

impl FollowerProcess<'_> {
    fn output_so_far(&self) -> String {
        std::fs::read_to_string(self.host.path("said")).expect("its output")
    }

    fn wait_for_output(&self, words: &str) {
        wait_until(words, || self.output_so_far().contains(words).then_some(()));
    }

    /// Waits until the follower has sent enough heartbeats to see the current state; asserts that it runs and reports no end of the run.
    fn assert_still_following(&mut self) {
        for _ in 0..3 {
            let beats = self.output_so_far().matches("\nH ").count();
            wait_until("a heartbeat", || (self.output_so_far().matches("\nH ").count() > beats).then_some(()));
        }
        assert_eq!(self.child.0.try_wait().expect("a child"), None, "the follower still runs");
        assert!(!self.output_so_far().contains("\nX "), "{}", self.output_so_far());
    }
}

/// With hidepid, or with an engine on another machine, only docker's answer proves the container's end.
#[test]
fn hidden_container_lives_until_docker_denies_it() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    host.record_launcher_and_rank(7, "7");
    host.write_file("h.private/container.pid", &format!("{UNUSED_PID} abc123 - {} \n", boot_id()));
    host.set_docker_answer("0\ntrue\n");
    let mut follower = host.start_run_follower(true);
    follower.assert_still_following();
    assert!(host.docker_calls().lines().next().is_some_and(|l| l.contains("inspect") && l.ends_with("abc123")), "{}", host.docker_calls());
    // An error that resembles the container's end is not one.
    host.set_docker_answer("1\nerror during connect: lookup engine.example: no such host\n");
    follower.wait_for_output("\nW docker silent\n");
    host.write_file("h.out/run1.node.log", "here and there\n");
    follower.wait_for_output("F node 5 10 0\nand there\n");
    follower.assert_still_following();
    host.set_docker_answer("1\nError: No such container: abc123\n");
    follower.wait_for_output("\nX node gone ");
    let text = follower.output_so_far();
    assert!(text.find("\nX rank-0.0 gone ") < text.find("\nX node gone "), "the rank is lost, and before its launcher: {text}");
    assert_eq!(text.matches("docker silent").count(), 1, "{text}");
}

/// A process has the recorded pid, but docker denies the container: the engine runs elsewhere.
#[test]
fn unproven_container_pid_keeps_no_run_alive() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    host.record_launcher_and_rank(7, "7");
    let other = spawn_sleeper();
    host.write_file("h.private/container.pid", &format!("{} abc123 {} {} \n", other.0.id(), process_start_ticks(other.0.id()), boot_id()));
    host.set_docker_answer("0\nfalse\n");
    let follower = host.start_run_follower(true);
    follower.wait_for_output("\nX node gone ");
}

/// While docker hangs, the proven pid of the container's first process is enough.
#[test]
fn visible_container_pid_needs_no_docker_unless_reused() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    host.record_launcher_and_rank(7, "7");
    let first = spawn_sleeper();
    let (pid, start) = (first.0.id(), process_start_ticks(first.0.id()));
    host.write_file("h.private/container.pid", &format!("{pid} abc123 {start} {} proven\n", boot_id()));
    host.set_docker_answer("hangs\n");
    let mut follower = host.start_run_follower(true);
    follower.assert_still_following();
    assert_eq!(host.docker_calls(), "");
    drop(first);
    follower.wait_for_output("\nX node gone ");
    drop(follower);
    // Another process has the same pid.
    let other = spawn_sleeper();
    host.write_file("h.private/container.pid", &format!("{} abc123 1 {} proven\n", other.0.id(), boot_id()));
    host.start_run_follower(true).wait_for_output("\nX node gone ");
}

#[test]
fn ranks_of_an_earlier_boot_have_ended() {
    for contained in [true, false] {
        let host = TestHost::new();
        host.prepare_run("run1", "");
        // Other processes have the pids of the ranks and the container.
        let other = spawn_sleeper();
        let (pid, start) = (other.0.id(), process_start_ticks(other.0.id()));
        host.record_launcher_and_rank(pid, &start);
        host.write_file("h.private/run1.boot", "another-boot\n");
        host.write_file("h.private/container.pid", &format!("{pid} abc123 {start} {} proven\n", boot_id()));
        host.write_file("h.private/keeper.pid", &format!("{pid} {start} another-boot\n"));
        host.write_file("h.out/run1.times", "900 node.log 1\n950 node.log 5\n");
        host.set_docker_answer("0\ntrue\n");
        let follower = host.start_run_follower(contained);
        follower.wait_for_output("\nX node gone 950\n");
        assert!(follower.output_so_far().contains("\nX rank-0.0 gone 950\n") || !contained, "{}", follower.output_so_far());
        drop(follower);
        let facts = facts_command(&host_context_for(&host, contained), &FactsRequest { docker: contained, ..FactsRequest::default() });
        let out = host.shell_command().args(["-c", &facts.script]).stdout(Stdio::piped()).output().expect("a shell");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(text.contains("\nnode ended killed 0\n") && text.contains("\nrank rank-0.0 killed 0\n"), "{text}");
    }
}

/// The keeper of a bare host is killed: the launcher continues, the follower starts another keeper, and the run's end is detected.
#[test]
fn dead_keeper_is_restarted_and_run_continues() {
    let host = TestHost::new();
    host.prepare_run("run1", "start_timeout=300\nstop_grace=1\n");
    host.write_file("h.in/keeper", &read_asset("keeper.sh"));
    let launcher = spawn_sleeper();
    host.record_launcher_and_rank(launcher.0.id(), &process_start_ticks(launcher.0.id()));
    host.write_file("h.private/keeper.pid", &format!("{UNUSED_PID} 5 {}\n", boot_id()));
    let mut follower = host.start_run_follower(false);
    follower.wait_for_output("\nW keeper again\n");
    let noted = std::fs::read_to_string(host.path("h.private/keeper.pid")).expect("a pid");
    let words: Vec<&str> = noted.split_whitespace().collect();
    let pid: u32 = words.first().and_then(|p| p.parse().ok()).expect("a pid");
    assert_eq!(words, [pid.to_string(), process_start_ticks(pid), boot_id()]);
    follower.assert_still_following();
    // Only the keeper writes the launcher's status.
    drop(launcher);
    follower.wait_for_output("\nX node killed ");
    std::fs::remove_file(host.path("h.in/run1/attached")).expect("removed");
    drop(follower);
    wait_until("the keeper exits", || (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
}

#[test]
fn launcher_that_died_with_its_keeper_has_ended() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    host.record_launcher_and_rank(UNUSED_PID, "5");
    host.write_file("h.private/keeper.pid", &format!("{UNUSED_PID} 5 {}\n", boot_id()));
    let follower = host.start_run_follower(false);
    follower.wait_for_output("\nX node gone ");
    assert!(follower.output_so_far().contains("\nX rank-0.0 gone "), "{}", follower.output_so_far());
    assert!(!follower.output_so_far().contains("W keeper"), "{}", follower.output_so_far());
}

/// Docker reports its version and hangs at the next call: the host counts as reachable, and all other facts are known.
#[test]
fn hung_docker_does_not_hide_the_host() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    host.record_launcher_and_rank(7, "7");
    host.set_docker_answer("hangs\n");
    let script = format!(
        "#!/bin/sh\necho \"$1\" >>'{0}/asked'\n[ \"$1\" = version ] && {{ echo 27.0; exit 0; }}\nexec /bin/sleep 1000\n",
        host.dir.path().display()
    );
    write_program(&host.path("bin/docker"), &script);
    let wanted = FactsRequest { docker: true, image: Some("i".to_owned()), ..FactsRequest::default() };
    let facts = facts_command(&host_context_for(&host, true), &wanted);
    let out = host.shell_command().args(["-c", &facts.script]).stdout(Stdio::piped()).output().expect("a shell");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    for line in ["docker 27.0", "docker_error docker did not answer within 10 s", "current run1", "log node 5"] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    assert!(text.contains("\nnow_end "), "{text}");
    assert_eq!(host.docker_calls(), "version\nps\n", "docker is not called again");
}

/// Two hosts of an inventory can be one machine: each ends its own processes of the run alone.
#[test]
fn processes_of_another_host_on_the_machine_are_not_ours() {
    let host = TestHost::new();
    let run = format!("two-hosts-{}", std::process::id());
    host.prepare_run(&run, "");
    let marked = |dir: Option<&str>| {
        let mut command = Command::new("sleep");
        command.arg("1000").env("ORCH_RUN_ID", &run).stdin(Stdio::null());
        if let Some(dir) = dir {
            command.env("ORCH_RUN_DIR", host.path(&format!("{dir}/{run}")));
        }
        ChildGuard(command.spawn().expect("sleep"))
    };
    let (own, mut other, without) = (marked(Some("h.in")), marked(Some("gh.in")), marked(None));
    let reap = |verb: &str| {
        let mut command = host.shell_command();
        let out = command.arg(host.path(&format!("h.in/{run}/reap"))).args([verb, &run]).stdout(Stdio::piped()).output().expect("a shell");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let listed = reap("list");
    for (process, is_ours) in [(&own, true), (&other, false), (&without, true)] {
        assert_eq!(listed.contains(&format!("left {} ", process.0.id())), is_ours, "{listed}");
    }
    assert_eq!(reap("kill"), "signalled KILL\n");
    assert_eq!(other.0.try_wait().expect("a child"), None, "it still runs");
}

/// A process that a rank starts when it gets TERM is left alone while the rank lives. What is left of it then gets TERM too, and not only KILL
/// after the grace period.
#[test]
fn stop_ends_what_a_rank_starts_while_it_stops_after_the_rank() {
    let host = TestHost::new();
    let run = format!("left-behind-{}", std::process::id());
    host.prepare_run(&run, "");
    let saved = host.path("saved");
    // The first helper outlives two looks at all processes; the second one is forgotten.
    let rank = format!(
        "trap 'sleep 5 && : >\"{}\"; sleep 1000 & exit 3' TERM\n: >\"{}\"\nwhile :; do sleep 0.1; done",
        saved.display(),
        host.path("ready").display()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &rank]).env("ORCH_RUN_ID", &run).env("ORCH_RUN_DIR", host.path(&format!("h.in/{run}"))).stdin(Stdio::null());
    let rank = ChildGuard(command.spawn().expect("a shell"));
    wait_until("the rank is ready", || host.path("ready").exists().then_some(()));
    let begun = Instant::now();
    let mut stop = host.shell_command();
    let out = stop.arg(host.path(&format!("h.in/{run}/reap"))).args(["stop", &run, "60"]).stdout(Stdio::piped()).output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "signalled TERM\n", "after {:?}", begun.elapsed());
    assert!(saved.exists(), "the first helper was not ended");
    drop(rank);
}

/// A task on the host beside a container is found by its mark, whatever its environment names; the ranks in the container are not its.
#[test]
fn host_task_is_ours_whatever_directory_its_environment_names() {
    let host = TestHost::new();
    let run = format!("host-task-{}", std::process::id());
    host.prepare_run(&run, "");
    let own = host.path(&format!("h.private/host.in/{run}"));
    std::fs::create_dir_all(&own).expect("made");
    for file in ["lib", "reap"] {
        std::fs::copy(host.path(&format!("h.in/{run}/{file}")), own.join(file)).expect("copied");
    }
    let with_mark = |mark: &str| {
        let mut command = Command::new("sleep");
        command.arg("1000").env(mark, &run).env("ORCH_RUN_DIR", host.path(&format!("h.in/{run}"))).stdin(Stdio::null());
        ChildGuard(command.spawn().expect("sleep"))
    };
    let (task, mut rank) = (with_mark("ORCH_HOST_TASK"), with_mark("ORCH_RUN_ID"));
    let reap = |verb: &str| {
        let out = host.shell_command().arg(own.join("reap")).args([verb, &run]).stdout(Stdio::piped()).output().expect("a shell");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    assert_eq!(reap("list"), format!("left {} sleep 1000 \n", task.0.id()));
    assert_eq!(reap("kill"), "signalled KILL\n");
    assert_eq!(rank.0.try_wait().expect("a child"), None, "it still runs");
}

/// No signal reaches the process, as in state D: `stop` still ends, and reports the process.
#[test]
fn stop_does_not_wait_for_unkillable_process() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let stuck = spawn_sleeper();
    host.record_launcher_and_rank(stuck.0.id(), &process_start_ticks(stuck.0.id()));
    let reap = read_asset("reap.sh");
    // The other `kill` sends root's signals, for tasks only.
    let deaf = reap.replace("kill -\"$1\" \"$2\" 2>/dev/null", ":");
    assert_eq!(deaf.matches("kill -").count(), reap.matches("kill -").count() - 1, "one `kill` is removed");
    host.write_file("h.in/run1/reap", &deaf);
    let Execution::Script(stop) = Action::StopRanks(StopRanks {
        context: host_context_for(&host, false),
        grace: Some(std::time::Duration::from_secs(2)),
        by_request: true,
        restore_scripts: false,
    })
    .execution() else {
        return;
    };
    let begun = Instant::now();
    let out = host.shell_command().args(["-c", &stop.script]).stdout(Stdio::piped()).output().expect("a shell");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(begun.elapsed() < TEST_TIMEOUT, "{:?}", begun.elapsed());
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("signalled KILL\n") && text.contains(&format!("left {} ", stuck.0.id())), "{text}");
}

/// A paused container is unpaused before its ranks are stopped; an unreachable engine does not prove the container's end.
#[test]
fn paused_container_is_unpaused_to_be_stopped() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    let Execution::Script(stop) =
        Action::StopRanks(StopRanks { context: host_context_for(&host, true), grace: None, by_request: true, restore_scripts: false })
            .execution()
    else {
        return;
    };
    let run = || host.shell_command().args(["-c", &stop.script]).stderr(Stdio::null()).status().expect("a shell").code();
    host.set_docker_answer("0\ntrue true\n");
    assert_eq!(run(), Some(0));
    let query = host.docker_calls();
    let verbs: Vec<&str> = query.lines().filter_map(|l| l.split(' ').next()).collect();
    assert_eq!(verbs, ["inspect", "unpause", "exec"]);
    host.set_docker_answer("1\nfailed to connect: dial unix /var/run/docker.sock: connect: no such file or directory\n");
    assert_eq!(run(), Some(78), "it is unknown whether the container runs");
    host.set_docker_answer("1\nError: No such container: x\n");
    assert_eq!(run(), Some(0));
}

/// A truncated log is reported and sent again from its first byte.
#[test]
fn truncated_log_is_sent_again() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    host.set_docker_answer("0\ntrue\n");
    let follower = host.start_run_follower(true);
    wait_until("the follower sends the log", || follower.output_so_far().starts_with("F node 0 5 0\nhere\n").then_some(()));
    host.write_file("h.out/run1.node.log", "ab\n");
    follower.wait_for_output("S node 3\nF node 0 3 0\nab\n");
}
