//! Ends of a run, and what only looks like one: containers and processes that cannot be seen, dead keepers, restarted hosts, daemons that hang.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use orchestrate::plan::action::launch::Stop;
use orchestrate::plan::action::{Action, Do};
use orchestrate::plan::facts::{self, Wanted};
use orchestrate::plan::follow::{self, Purpose};
use orchestrate::plan::site::Site;

use crate::{Host, Kept, PATIENCE, asset, executable, until};

/// A number that no process has: above the kernel's limit.
const NOBODY: u32 = 99_999_999;

fn site(host: &Host, contained: bool) -> Site {
    Site {
        name: ".".to_owned(),
        host: "h".to_owned(),
        run: "run1".to_owned(),
        base: host.dir.path().to_str().expect("text").to_owned(),
        sudo: false,
        engine: None,
        contained,
        token: None,
        old: false,
        log_max: 0,
        ranks: 0,
    }
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id").trim_end().to_owned()
}

/// When a process started, in ticks since the boot.
fn born(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, rest) = stat.rsplit_once(") ").expect("a stat");
    rest.split(' ').nth(19).expect("a start").to_owned()
}

/// A process that lives until the test ends.
fn sleeper() -> Kept {
    Kept(Command::new("/bin/sleep").arg("1000").spawn().expect("a process"))
}

/// A follower of `run1`, by the text of the plan.
struct Follower<'a> {
    host: &'a Host,
    child: Kept,
}

impl Host {
    /// Docker as it stands in the file `says`: the first line its exit status or `hangs`, the rest its answer. Its calls are noted.
    fn docker(&self, says: &str) {
        self.write("says", says);
        let dir = self.at("").display().to_string();
        let script = format!(
            "#!/bin/sh\necho \"$*\" >>'{dir}/asked'\n{{ read -r code; [ \"$code\" != hangs ] || exec /bin/sleep 1000; cat; }} <'{dir}/says'\nexit \"$code\"\n"
        );
        executable(&self.at("bin/docker"), &script);
        // What is given seconds gets one.
        executable(&self.at("bin/timeout"), "#!/bin/sh\nshift\nexec /usr/bin/timeout 1 \"$@\"\n");
    }

    fn asked(&self) -> String {
        std::fs::read_to_string(self.at("asked")).unwrap_or_default()
    }

    /// The launcher and one rank, noted as wrappers do.
    fn noted(&self, launcher: u32, start: &str) {
        for name in ["node", "rank-0.0"] {
            self.write(&format!("h.out/run1.{name}.pid"), &format!("{launcher} {start} 1000.5 {}\n", boot()));
        }
        self.write("h.private/run1.boot", &format!("{}\n", boot()));
    }

    fn follow(&self, contained: bool) -> Follower<'_> {
        let script = follow::command(&site(self, contained), &[], 1, Purpose::Guard, true).script;
        let said = std::fs::File::create(self.at("said")).expect("a file");
        let mut child = Kept(self.shell().args(["-c", &script]).stdin(Stdio::piped()).stdout(said).spawn().expect("a shell"));
        // A laptop that has taken everything that will ever come.
        child.0.stdin.as_mut().expect("its input").write_all(b"100000000 100000000\n").expect("acknowledged");
        Follower { host: self, child }
    }
}

impl Follower<'_> {
    fn text(&self) -> String {
        std::fs::read_to_string(self.host.at("said")).expect("its words")
    }

    fn says(&self, words: &str) {
        until(words, || self.text().contains(words).then_some(()));
    }

    /// It looks often enough for what was true when this was called, sends what is written, and has not called the run ended.
    fn goes_on(&mut self) {
        for _ in 0..3 {
            let beats = self.text().matches("\nH ").count();
            until("a sign of life", || (self.text().matches("\nH ").count() > beats).then_some(()));
        }
        assert_eq!(self.child.0.try_wait().expect("a child"), None, "it follows");
        assert!(!self.text().contains("\nX "), "{}", self.text());
    }
}

/// `/proc` with hidepid, and an engine on another machine: docker is asked, and only its word is an end.
#[test]
fn a_container_whose_pid_is_not_seen_lives_until_docker_says_otherwise() {
    let host = Host::new();
    host.run("run1", "");
    host.noted(7, "7");
    host.write("h.private/container.pid", &format!("{NOBODY} abc123 - {} \n", boot()));
    host.docker("0\ntrue\n");
    let mut follower = host.follow(true);
    follower.goes_on();
    assert!(host.asked().lines().next().is_some_and(|l| l.contains("inspect") && l.ends_with("abc123")), "{}", host.asked());
    // Errors that sound like an end are none.
    host.docker("1\nerror during connect: lookup engine.example: no such host\n");
    follower.says("\nW docker silent\n");
    host.write("h.out/run1.node.log", "here and there\n");
    follower.says("F node 5 10\nand there\n");
    follower.goes_on();
    host.docker("1\nError: No such container: abc123\n");
    follower.says("\nX node gone ");
    let text = follower.text();
    assert!(text.find("\nX rank-0.0 gone ") < text.find("\nX node gone "), "the rank is lost, and before its launcher: {text}");
    assert_eq!(text.matches("docker silent").count(), 1, "{text}");
}

/// A pid that is a process of ours here, and is not the container's: the engine is elsewhere.
#[test]
fn a_pid_that_is_not_proven_to_be_the_containers_keeps_no_run_alive() {
    let host = Host::new();
    host.run("run1", "");
    host.noted(7, "7");
    let other = sleeper();
    host.write("h.private/container.pid", &format!("{} abc123 {} {} \n", other.0.id(), born(other.0.id()), boot()));
    host.docker("0\nfalse\n");
    let follower = host.follow(true);
    follower.says("\nX node gone ");
}

/// With docker hanging: what was proven to be the container's first process says all that is needed.
#[test]
fn a_first_process_that_is_seen_needs_no_docker_and_a_reused_pid_is_not_it() {
    let host = Host::new();
    host.run("run1", "");
    host.noted(7, "7");
    let first = sleeper();
    let (pid, start) = (first.0.id(), born(first.0.id()));
    host.write("h.private/container.pid", &format!("{pid} abc123 {start} {} proven\n", boot()));
    host.docker("hangs\n");
    let mut follower = host.follow(true);
    follower.goes_on();
    assert_eq!(host.asked(), "");
    drop(first);
    follower.says("\nX node gone ");
    drop(follower);
    // The same number, another process.
    let other = sleeper();
    host.write("h.private/container.pid", &format!("{} abc123 1 {} proven\n", other.0.id(), boot()));
    host.follow(true).says("\nX node gone ");
}

#[test]
fn ranks_of_an_earlier_boot_have_ended() {
    for contained in [true, false] {
        let host = Host::new();
        host.run("run1", "");
        // Their numbers live again, and so does the container.
        let other = sleeper();
        let (pid, start) = (other.0.id(), born(other.0.id()));
        host.noted(pid, &start);
        host.write("h.private/run1.boot", "another-boot\n");
        host.write("h.private/container.pid", &format!("{pid} abc123 {start} {} proven\n", boot()));
        host.write("h.private/keeper.pid", &format!("{pid} {start} another-boot\n"));
        host.write("h.out/run1.times", "900 node.log 1\n950 node.log 5\n");
        host.docker("0\ntrue\n");
        let follower = host.follow(contained);
        follower.says("\nX node gone 950\n");
        assert!(follower.text().contains("\nX rank-0.0 gone 950\n") || !contained, "{}", follower.text());
        drop(follower);
        let facts = facts::command(&site(&host, contained), &Wanted { docker: contained, ..Wanted::default() });
        let out = host.shell().args(["-c", &facts.script]).stdout(Stdio::piped()).output().expect("a shell");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(text.contains("\nnode ended killed 0\n") && text.contains("\nrank rank-0.0 killed 0\n"), "{text}");
    }
}

/// The keeper of a bare host is killed: the launcher goes on, another keeper looks after it, and its end is seen.
#[test]
fn a_dead_keeper_is_no_end_of_the_run_and_is_started_again() {
    let host = Host::new();
    host.run("run1", "start_timeout=300\nstop_grace=1\n");
    host.write("h.in/keeper", &asset("keeper.sh"));
    let launcher = sleeper();
    host.noted(launcher.0.id(), &born(launcher.0.id()));
    host.write("h.private/keeper.pid", &format!("{NOBODY} 5 {}\n", boot()));
    let mut follower = host.follow(false);
    follower.says("\nW keeper again\n");
    let noted = std::fs::read_to_string(host.at("h.private/keeper.pid")).expect("a pid");
    let words: Vec<&str> = noted.split_whitespace().collect();
    let pid: u32 = words.first().and_then(|p| p.parse().ok()).expect("a pid");
    assert_eq!(words, [pid.to_string(), born(pid), boot()]);
    follower.goes_on();
    // Nobody writes the launcher's status but the keeper.
    drop(launcher);
    follower.says("\nX node killed ");
    std::fs::remove_file(host.at("h.in/run1/attached")).expect("removed");
    drop(follower);
    until("the keeper leaves", || (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
}

#[test]
fn a_launcher_that_died_with_its_keeper_has_ended() {
    let host = Host::new();
    host.run("run1", "");
    host.noted(NOBODY, "5");
    host.write("h.private/keeper.pid", &format!("{NOBODY} 5 {}\n", boot()));
    let follower = host.follow(false);
    follower.says("\nX node gone ");
    assert!(follower.text().contains("\nX rank-0.0 gone "), "{}", follower.text());
    assert!(!follower.text().contains("W keeper"), "{}", follower.text());
}

/// Docker answers what its version is, and hangs at the next question: the host is reached, and all else is known.
#[test]
fn a_docker_that_hangs_does_not_hide_the_host() {
    let host = Host::new();
    host.run("run1", "");
    host.noted(7, "7");
    host.docker("hangs\n");
    let script = format!(
        "#!/bin/sh\necho \"$1\" >>'{0}/asked'\n[ \"$1\" = version ] && {{ echo 27.0; exit 0; }}\nexec /bin/sleep 1000\n",
        host.dir.path().display()
    );
    executable(&host.at("bin/docker"), &script);
    let wanted = Wanted { docker: true, image: Some("i".to_owned()), ..Wanted::default() };
    let facts = facts::command(&site(&host, true), &wanted);
    let out = host.shell().args(["-c", &facts.script]).stdout(Stdio::piped()).output().expect("a shell");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    for line in ["docker 27.0", "docker_error docker did not answer within 10 s", "current run1", "log node 5"] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    assert!(text.contains("\nnow_end "), "{text}");
    assert_eq!(host.asked(), "version\nps\n", "it is not asked again");
}

/// A process that no signal reaches, as one in state D: the order to end has an end, and says what is left.
#[test]
fn a_stop_does_not_wait_for_a_process_that_cannot_end() {
    let host = Host::new();
    host.run("run1", "");
    let stuck = sleeper();
    host.noted(stuck.0.id(), &born(stuck.0.id()));
    let reap = asset("reap.sh");
    let deaf = reap.replace("kill -\"$1\" \"$p\" 2>/dev/null", ":").replace("kill -TERM \"$p\" 2>/dev/null", ":");
    assert_eq!(deaf.matches("kill -0").count(), reap.matches("kill -").count() - 2, "it sends no signal");
    host.write("h.in/run1/reap", &deaf);
    let Do::Script(stop) =
        Action::Stop(Stop { site: site(&host, false), grace: Some(std::time::Duration::from_secs(2)), ordered: true, lost: false })
            .command()
    else {
        return;
    };
    let begun = Instant::now();
    let out = host.shell().args(["-c", &stop.script]).stdout(Stdio::piped()).output().expect("a shell");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("signalled KILL\n") && text.contains(&format!("left {} ", stuck.0.id())), "{text}");
}

/// A container that a person paused is woken before its ranks are asked to end; an engine that is away is no end.
#[test]
fn a_paused_container_is_woken_to_be_stopped() {
    let host = Host::new();
    host.run("run1", "");
    let Do::Script(stop) = Action::Stop(Stop { site: site(&host, true), grace: None, ordered: true, lost: false }).command() else {
        return;
    };
    let run = || host.shell().args(["-c", &stop.script]).stderr(Stdio::null()).status().expect("a shell").code();
    host.docker("0\ntrue true\n");
    assert_eq!(run(), Some(0));
    let asked = host.asked();
    let verbs: Vec<&str> = asked.lines().filter_map(|l| l.split(' ').next()).collect();
    assert_eq!(verbs, ["inspect", "unpause", "exec"]);
    host.docker("1\nfailed to connect: dial unix /var/run/docker.sock: connect: no such file or directory\n");
    assert_eq!(run(), Some(78), "whether it runs is not known");
    host.docker("1\nError: No such container: x\n");
    assert_eq!(run(), Some(0));
}

/// A log that was cut: it is said, and sent again from its first byte.
#[test]
fn a_log_that_was_truncated_is_sent_again() {
    let host = Host::new();
    host.run("run1", "");
    host.docker("0\ntrue\n");
    let follower = host.follow(true);
    until("the log", || follower.text().starts_with("F node 0 5\nhere\n").then_some(()));
    host.write("h.out/run1.node.log", "ab\n");
    follower.says("S node 3\nF node 0 3\nab\n");
}
