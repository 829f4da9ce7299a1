//! A run that fails: who is named, who is stopped, and that nothing is left.

use orchestrate::event::{EventKind, Exit, Phase};

use orchestrate::sandbox::{Faults, OomKill};

use crate::load::two_seconds;
use crate::signals::lives;
use crate::support::{Bench, Job, word};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rank_that_failed_is_named_and_the_others_are_stopped() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("fails", &Job { nproc: 2, ..Job::default() }));
    let mut up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(4).await;
    // As long as nobody watches, the host's own keeper stops them.
    up.says("ready").await;
    bench.end(Some(3), 7);
    let ended = up.end().await;
    ended
        .code(1)
        .recap("FAILED")
        .says("rank 3 on gpu02 failed: exit 7")
        .says("FIRST     rank 3 on gpu02: exit 7")
        .says("| rank 3 ends with 7");
    bench.nothing_left().await;
    let events = laptop.journal();
    let told = |k: &EventKind| matches!(k, EventKind::RankExited { rank: 3, exit: Exit::Code(7), .. });
    assert!(events.iter().any(|e| told(&e.kind)), "its end is in the journal");
    // By its own word, not by ours.
    let (died, soon) = (bench.died(3), two_seconds());
    for host in 0..2 {
        let signalled = events.iter().find_map(|e| match &e.kind {
            EventKind::Signalled { host: h, signal } if *h == host && signal == "TERM" => Some(e.at),
            _ => None,
        });
        let after = signalled.expect("signalled") - died;
        assert!(after <= soon, "host {host} was signalled {after} ms after the death, {soon} allowed");
    }
    for rank in 0..3 {
        let after = i128::try_from(bench.term(rank).expect("TERM arrived")).expect("small") / 1_000_000 - i128::from(died);
        assert!(after <= i128::from(soon), "rank {rank} saw TERM {after} ms after the death, {soon} allowed");
        assert!(String::from_utf8_lossy(&laptop.log(&format!("rank-{rank}.log"))).contains("saw TERM and saved"));
    }
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_ignores_term_is_killed_after_the_grace() {
    for contained in [true, false] {
        let bench = Bench::hosts(2).await;
        let job = Job { grace: "3s", contained, env: "DEAF: \"0\"".to_owned(), ..Job::default() };
        let (laptop, file) = (bench.laptop("laptop"), bench.inventory("deaf", &job));
        let mut up = laptop.start(&["up", word(&file)]);
        bench.ranks_up(2).await;
        up.says("ready").await;
        bench.end(Some(1), 9);
        up.end().await.code(1).recap("FAILED").says("FIRST     rank 1 on gpu02: exit 9");
        assert!(bench.term(0).is_some(), "it was asked first");
        let log = String::from_utf8(laptop.log("rank-0.log")).expect("text");
        assert!(log.contains("rank 0 is deaf"), "{log}");
        bench.nothing_left().await;
        let events = laptop.journal();
        let at = |f: &dyn Fn(&EventKind) -> bool| events.iter().find(|e| f(&e.kind)).map(|e| e.at);
        let term = at(&|k| matches!(k, EventKind::Signalled { host: 0, signal } if signal == "TERM")).expect("TERM");
        let over =
            at(&|k| matches!(k, EventKind::NodeExited { host: 0, .. } | EventKind::PhaseStarted { phase: Phase::Remove })).expect("over");
        assert!((3000..30_000).contains(&(over - term)), "killed after its three seconds, and not much later: {} ms", over - term);
        bench.done().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_that_breaks_off_is_undone() {
    let none = "command: [--no_python, /no/such/program, x]\n";
    let script = |text: &str, more: &str| format!("with: script\nshell: |\n  {text}\ngate: port\n{more}");
    let cases = [
        ("program", none.to_owned(), (3, "REFUSED"), vec!["/no/such/program not found in the container", "use an image that has it"]),
        ("dies", script("echo the first words; exit 5", ""), (1, "FAILED"), vec!["the master's launcher has ended", "the first words"]),
        ("silent", script("sleep 1000", "master_timeout: 1s\n"), (1, "FAILED"), vec!["did not listen within 1 s", "launch.master_timeout"]),
    ];
    let bench = Bench::hosts(2).await;
    for (name, launch, (code, recap), words) in cases {
        let job = Job { launch, grace: "1s", ..Job::default() };
        let (laptop, file) = (bench.laptop(name), bench.inventory(name, &job));
        let ended = laptop.run(&["up", word(&file)]).await;
        ended.code(code).recap(recap);
        for text in words {
            ended.says(text);
        }
        bench.nothing_left().await;
    }
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_not_there_fails_its_rank() {
    let bench = Bench::hosts(2).await;
    // Found by no preflight: the shell of the rank looks for it.
    let job = Job { launch: "command: [--no_python, /bin/sh, -c, 'exec no-such-trainer']\n".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("missing", &job));
    laptop.run(&["up", word(&file)]).await.code(1).recap("FAILED").says("exit 127").says("no-such-trainer: not found");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_killed_for_its_memory_is_told() {
    let bench = Bench::hosts(2).await;
    let starve = OomKill { rank: 1, after: 0.3, matching: "bench/payload".to_owned() };
    bench.faults("gpu02", &Faults { oom_kill: Some(starve), ..Faults::default() });
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("memory", &Job::default()));
    let ended = laptop.run(&["up", word(&file)]).await;
    ended
        .code(1)
        .recap("FAILED")
        .says("FIRST     rank 1 on gpu02: signal 9 (KILL)")
        .says("CAUSE     rank 1 on gpu02: the kernel killed a process of the container for");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gang_whose_launcher_is_killed_is_stopped() {
    for contained in [true, false] {
        let bench = Bench::hosts(2).await;
        let job = Job { contained, ..Job::default() };
        let (laptop, file) = (bench.laptop("laptop"), bench.inventory("agent", &job));
        let up = laptop.start(&["up", word(&file)]);
        let pids = bench.ranks_up(2).await;
        // torchrun itself, by its pid: a child of the recorded wrapper.
        let node = std::fs::read_to_string(bench.written("agent", 1, "node.pid")).expect("a pid");
        let node: i32 = node.split(' ').next().expect("a pid").parse().expect("a number");
        let agent = child_of(node, &bench.sandbox.processes());
        rustix::process::kill_process(rustix::process::Pid::from_raw(agent).expect("a pid"), rustix::process::Signal::KILL)
            .expect("killed");
        up.end().await.code(1).recap("FAILED").says("launcher on gpu02");
        bench.nothing_left().await;
        assert!(pids.iter().all(|pid| !lives(*pid)), "its workers have ended too");
        bench.done().await;
    }
}

fn child_of(parent: i32, among: &[i32]) -> i32 {
    let ppid = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<i32>().ok()
    };
    among.iter().copied().find(|pid| ppid(*pid) == Some(parent)).expect("a child")
}
