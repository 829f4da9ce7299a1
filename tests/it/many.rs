//! Many hosts at once.

use crate::support::{Bench, Job, word};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_ready_containers_serve_a_second_run() {
    let bench = Bench::hosts(16).await;
    let script = "with: script\ngate: none\nshell: \"true\"\n".to_owned();
    let job = Job { launch: script, top: "teardown: never\n".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("ready", &job));
    laptop.run(&["up", word(&file)]).await.code(0).recap("OK").says("16 ok  0 failed of 16").says("gpu[01-16]");
    let ids = |bench: &Bench| (0..16).map(|host| bench.containers(host)[0].1.clone()).collect::<Vec<_>>();
    let before = ids(&bench);
    laptop.run(&["up", word(&file)]).await.code(0).recap("OK").says("16 ok  0 failed of 16");
    assert_eq!(ids(&bench), before, "the same containers");
    laptop.run(&["down", word(&file)]).await.code(0);
    bench.done().await;
}

/// Tier 2.
mod whole {
    use orchestrate::event::{EventKind, Exit};

    use super::*;
    use crate::load::two_seconds;

    /// What grows faster than the number of hosts is felt here. It takes minutes: all hosts have their shells on the processors of one machine.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_hundred_and_fifty_six_hosts_come_and_go() {
        let bench = Bench::hosts(256).await;
        let script = "with: script\ngate: none\nshell: \"echo here\"\n".to_owned();
        let job = Job { contained: false, launch: script, top: "teardown: never\n".to_owned(), ..Job::default() };
        let (laptop, file) = (bench.laptop("laptop"), bench.inventory("vast", &job));
        let mut started = std::time::Instant::now();
        for (words, says) in [
            // Nobody follows: 256 log streams are more than the processors of one machine can serve.
            (&["up", word(&file), "--preflight", "off", "-d"][..], "256 ranks on 256 hosts"),
            (&["ps", word(&file)], "gpu256"),
            (&["down", word(&file)], "nothing is left"),
        ] {
            laptop.run(words).await.code(0).says(says);
            println!("{} of 256 hosts: {:?}", words[0], started.elapsed());
            started = std::time::Instant::now();
        }
        bench.done().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_dead_rank_of_sixty_four_hosts_stops_all_within_two_seconds() {
        let bench = Bench::hosts(64).await;
        // Light ranks: one script a host, waiting in a read that a signal ends.
        let script = "with: script\ngate: none\nshell: |\n  mkfifo \"$BENCH/fifo.$RANK\" 2>/dev/null; trap 'exit 143' TERM\n  echo $$ >\"$BENCH/up.$RANK.new\"; mv \"$BENCH/up.$RANK.new\" \"$BENCH/up.$RANK\"\n  \
                      read -r code <\"$BENCH/fifo.$RANK\"; exit $code\n";
        let job = Job { contained: false, launch: script.to_owned(), grace: "20s", ..Job::default() };
        let (laptop, file) = (bench.laptop("laptop"), bench.inventory("many", &job));
        let mut up = laptop.start(&["up", word(&file)]);
        bench.ranks_up(64).await;
        up.says("ready").await;
        let died = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
        let died = i64::try_from(died).expect("a time");
        std::fs::write(bench.bench().join("fifo.40"), "7\n").expect("written");
        up.end().await.code(1).recap("FAILED").says("FIRST     rank 40 on gpu41: exit 7");
        let events = laptop.journal();
        let told = |k: &EventKind| matches!(k, EventKind::RankExited { rank: 40, exit: Exit::Code(7), .. });
        assert!(events.iter().any(|e| told(&e.kind)), "its end is in the journal");
        let mut signalled = std::collections::BTreeMap::new();
        for event in &events {
            if let EventKind::Signalled { host, .. } = &event.kind {
                signalled.entry(*host).or_insert(event.at - died);
            }
        }
        assert_eq!(signalled.len(), 64);
        let slowest = signalled.values().max().copied().unwrap_or_default();
        let soon = two_seconds();
        assert!(slowest <= soon, "the last host was signalled {slowest} ms after the death, {soon} allowed");
        bench.done().await;
    }
}
