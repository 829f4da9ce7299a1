//! Every way in which a run can end or be left: what `runs` lists, the recap's word and the exit code agree.

use crate::signals::lives;
use crate::support::{Bench, Ended, Job, Laptop, until, word};
use crate::tui::open;

/// How one command said that the run ended.
#[track_caller]
fn agrees(way: &str, ended: &Ended, code: i32, recap: &str) {
    assert_eq!(ended.code, Some(code), "{way}: {}{}", ended.out, ended.err);
    let head = ended.err.lines().find(|line| line.starts_with("RECAP")).unwrap_or_default();
    assert!(head.contains(&format!("  {recap}  ")), "{way}: no recap `{recap}`: {head:?}\n{}", ended.err);
}

/// The last column of `runs`, the oldest run first, and how long each took.
async fn listed(laptop: &Laptop) -> Vec<(String, String)> {
    let runs = laptop.run(&["runs"]).await;
    let lines: Vec<&str> = runs.code(0).out.lines().collect();
    let column = |name: &str| lines[0].find(name).expect("a column");
    let (took, ended) = (column("TOOK"), column("ENDED"));
    lines[1..].iter().map(|line| (line[ended..].trim().to_owned(), line[took..ended].trim().to_owned())).collect()
}

async fn lists(laptop: &Laptop, way: &str, words: &[&str]) {
    let found: Vec<String> = listed(laptop).await.into_iter().map(|(word, _)| word).collect();
    assert_eq!(found, words, "{way}");
}

/// A bench of hosts with a rank each. One is enough for what is asked here: how a run ended is one thing for all of its hosts.
async fn on(hosts: usize, name: &str, job: &Job) -> (Bench, Laptop, std::path::PathBuf) {
    let bench = Bench::hosts(hosts).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory(name, job));
    (bench, laptop, file)
}

/// Launched, and left to itself.
async fn left(name: &str, job: &Job) -> (Bench, Laptop, std::path::PathBuf) {
    let (bench, laptop, file) = on(1, name, job).await;
    agrees(name, &laptop.run(&["up", "-d", word(&file)]).await, 0, "DETACHED");
    bench.ranks_up(1).await;
    (bench, laptop, file)
}

/// The launcher of a run has ended while nobody looked.
async fn launcher_ended(bench: &Bench, name: &str) {
    until("the launcher has ended", async || bench.written(name, 0, "node.rc").exists().then_some(())).await;
}

/// Its name, the job, the signals or the code with which the ranks end, the exit code, the recap's word.
type Way = (&'static str, Job, &'static [&'static str], Option<i32>, i32, &'static str);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_followed_run_that_ends_or_is_stopped() {
    let deaf = || Job { grace: "300s", env: "DEAF: \"0\"".to_owned(), ..Job::default() };
    // What happens to it once it runs: signals, or the code with which the ranks end.
    let ways: [Way; 6] = [
        ("well", Job::default(), &[], Some(0), 0, "OK"),
        ("failed", Job::default(), &[], Some(3), 1, "FAILED"),
        ("once", Job::default(), &["INT"], None, 130, "STOPPED"),
        ("twice", deaf(), &["INT", "INT"], None, 130, "STOPPED"),
        ("term", Job::default(), &["TERM"], None, 143, "STOPPED"),
        ("bare", Job { contained: false, ..Job::default() }, &["INT"], None, 130, "STOPPED"),
    ];
    for (way, job, signals, end, code, recap) in ways {
        let (bench, laptop, file) = on(1, way, &job).await;
        let up = laptop.start(&["up", word(&file)]);
        bench.ranks_up(1).await;
        for signal in signals {
            up.signal(signal);
            until("it was told", async || bench.term(0)).await;
        }
        if let Some(code) = end {
            bench.end(None, code);
        }
        agrees(way, &up.end().await, code, recap);
        lists(&laptop, way, &[recap]).await;
        bench.done().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_left_and_what_becomes_of_it() {
    // The terminal goes away; the program is killed.
    for (signal, recap, list) in [("HUP", "DETACHED", "DETACHED"), ("KILL", "", "end not seen from this laptop")] {
        let (bench, laptop, file) = on(1, "gone", &Job::default()).await;
        let mut up = laptop.start(&["up", word(&file), "--progress", "plain"]);
        bench.ranks_up(1).await;
        up.says("ready").await;
        up.signal(signal);
        let ended = up.end().await;
        if recap.is_empty() {
            assert_eq!(ended.code, None, "killed");
        } else {
            agrees(signal, &ended, 129, recap);
        }
        lists(&laptop, signal, &[list]).await;
        agrees(signal, &laptop.run(&["down", word(&file)]).await, 0, "OK");
        lists(&laptop, signal, &["STOPPED"]).await;
        bench.done().await;
    }
    // It ends while nobody looks: the hosts say how, whichever command asks them.
    for (code, list) in [(0, "OK"), (5, "FAILED")] {
        for command in ["down", "attach", "logs", "up"] {
            let way = format!("{command} after {code}");
            let (bench, laptop, file) = left("unseen", &Job::default()).await;
            laptop.run(&["logs", word(&file)]).await.code(0);
            lists(&laptop, &way, &["DETACHED"]).await;
            bench.end(None, code);
            launcher_ended(&bench, "unseen").await;
            match command {
                "up" => {
                    bench.again();
                    bench.end(None, 0);
                    agrees(&way, &laptop.run(&["up", word(&file)]).await, 0, "OK");
                    lists(&laptop, &way, &[list, "OK"]).await;
                }
                "attach" => {
                    agrees(&way, &laptop.run(&["attach", word(&file)]).await, i32::from(code != 0), list);
                    lists(&laptop, &way, &[list]).await;
                }
                _ => {
                    laptop.run(&[command, word(&file)]).await.code(0);
                    lists(&laptop, &way, &[list]).await;
                }
            }
            let before = listed(&laptop).await;
            laptop.run(&["down", word(&file)]).await.code(0);
            assert_eq!(listed(&laptop).await, before, "{way}: what is known stays, and the run took no longer");
            bench.done().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looks_on_and_leaves_detaches() {
    let (bench, laptop, file) = left("looker", &Job::default()).await;
    for words in [["attach", word(&file)], ["up", word(&file)]] {
        let mut looker = laptop.start(&[words[0], words[1], "--progress", "plain"]);
        looker.says("rank 0 of 1").await;
        looker.signal("INT");
        agrees(words[0], &looker.end().await, 130, "DETACHED");
        lists(&laptop, words[0], &["DETACHED"]).await;
    }
    laptop.run(&["down", word(&file)]).await.code(0);
    lists(&laptop, "down", &["STOPPED"]).await;
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_stopped_from_elsewhere() {
    // By the same laptop, by another one, and by another one's next run.
    for (way, words) in [("laptop", &["down"][..]), ("other", &["down"]), ("other", &["up", "--recreate"])] {
        let (bench, laptop, file) = on(1, "elsewhere", &Job::default()).await;
        let other = bench.laptop(way);
        let mut up = laptop.start(&["up", word(&file), "--progress", "plain", "--lock-wait", "50s"]);
        bench.ranks_up(1).await;
        up.says("ready").await;
        bench.again();
        let second = other.start(&[words, &[word(&file)]].concat());
        if words[0] == "up" {
            bench.ranks_up(1).await;
        }
        let ended = up.end().await;
        agrees(way, &ended, 1, "STOPPED");
        ended.says("stopped from elsewhere").silent_about("FIRST").silent_about("1 failed");
        lists(&laptop, way, &["STOPPED"]).await;
        bench.end(None, 0);
        agrees(way, &second.end().await, 0, "OK");
        bench.done().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_replaced() {
    let (bench, laptop, file) = left("replaced", &Job::default()).await;
    bench.again();
    let up = laptop.start(&["up", word(&file), "--recreate"]);
    bench.ranks_up(1).await;
    bench.end(None, 0);
    agrees("recreate", &up.end().await, 0, "OK");
    lists(&laptop, "recreate", &["STOPPED", "OK"]).await;
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_that_comes_to_nothing_and_a_teardown_that_leaves_something() {
    // Every rank ends at once.
    let job = Job { launch: "with: script\ngate: none\nshell: \"exit 3\"\n".to_owned(), ..Job::default() };
    let (bench, laptop, file) = on(1, "typo", &job).await;
    agrees("typo", &laptop.run(&["up", "-d", word(&file)]).await, 1, "FAILED");
    lists(&laptop, "typo", &["FAILED"]).await;
    bench.done().await;
    // A host is lost while the run is stopped.
    let (bench, laptop, file) = on(2, "lost", &Job::default()).await;
    let mut up = laptop.start(&["up", word(&file), "--progress", "plain"]);
    bench.ranks_up(2).await;
    up.says("ready").await;
    let away = orchestrate::sandbox::Faults { refuse_key: true, ..orchestrate::sandbox::Faults::default() };
    bench.faults("gpu02", &away);
    bench.sandbox.drop_connections("gpu02").expect("a host");
    up.says("gpu02: ").await;
    up.signal("INT");
    let ended = up.end().await;
    agrees("lost", &ended, 5, "LEFTOVERS");
    lists(&laptop, "lost", &["STOPPED"]).await;
    ended.says("STOPPED");
    bench.faults("gpu02", &orchestrate::sandbox::Faults::default());
    laptop.run(&["down", word(&file), "--yes"]).await.code(0);
    lists(&laptop, "lost, then down", &["STOPPED"]).await;
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_ends_from_the_dashboard() {
    // Stopped, restarted and then torn down, torn down at once: by key.
    for (way, code) in [("stop", 130), ("restart", 1), ("tear", 1)] {
        let (bench, laptop, file) = left(way, &Job::default()).await;
        let mut pids = bench.ranks_up(1).await;
        let mut terminal = open(&laptop, &["tui", word(&file)]);
        terminal.sees("RUNNING");
        let press = |terminal: &mut crate::terminal::Terminal, title: &str, key: &str| {
            if terminal.text().contains(title) {
                terminal.press(key);
            }
        };
        if way == "restart" {
            bench.again();
            terminal.press("R");
            terminal.sees("RESTART THE RUN");
            until("it was stopped", async || {
                press(&mut terminal, "RESTART THE RUN", "y");
                (!pids.iter().any(|pid| lives(*pid))).then_some(())
            })
            .await;
            pids = bench.ranks_up(1).await;
            terminal.sees("RUNNING");
        }
        if way == "stop" {
            terminal.press("H");
            terminal.sees("STOP THE RUN");
        } else {
            terminal.press("X");
            terminal.sees("to confirm:");
            terminal.press(way);
            terminal.sees(&format!("{way}_"));
        }
        until("it is over", async || {
            press(&mut terminal, "STOP THE RUN", "y");
            press(&mut terminal, "to confirm:", "\r");
            (!pids.iter().any(|pid| lives(*pid))).then_some(())
        })
        .await;
        terminal.sees("U start");
        terminal.sees("STOPPED");
        bench.nothing_left().await;
        // An answer that was given twice has opened another view.
        terminal.press("1");
        terminal.sees("1-[Overview]");
        terminal.press("q");
        assert_eq!(terminal.ends(), code, "{way}: {}", terminal.text());
        let text = terminal.sees("RECAP");
        assert!(text.lines().any(|line| line.starts_with("RECAP") && line.contains("  STOPPED  ")), "{way}: {text}");
        let expected: &[&str] = if way == "restart" { &["STOPPED", "STOPPED"] } else { &["STOPPED"] };
        lists(&laptop, way, expected).await;
        bench.done().await;
    }
}
