//! Many hosts at the same time.

use crate::support::{JobSpec, SandboxFixture, path_str};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_containers_of_many_hosts_are_reused() {
    let fixture = SandboxFixture::with_hosts(8).await;
    let script = "with: script\ngate: none\nshell: \"true\"\n".to_owned();
    let job = JobSpec { launch: script, top_level: "teardown: never\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("ready", &job));
    laptop
        .run(&["up", path_str(&file)])
        .await
        .assert_exit_code(0)
        .assert_recap("OK")
        .assert_contains("8 ok  0 failed of 8")
        .assert_contains("gpu[01-08]");
    let ids = |fixture: &SandboxFixture| (0..8).map(|host| fixture.containers(host)[0].1.clone()).collect::<Vec<_>>();
    let before = ids(&fixture);
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0).assert_recap("OK").assert_contains("8 ok  0 failed of 8");
    assert_eq!(ids(&fixture), before, "the same containers");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

/// Tier 2.
mod whole {
    use orchestrate::event::{EventKind, Exit};

    use super::*;
    use crate::load_scaling::two_seconds_under_load;

    /// Of one command with 256 hosts: beside other suites an `up` took 250 s.
    const LIMIT: std::time::Duration = std::time::Duration::from_secs(1200);

    /// Shows anything that grows faster than the number of hosts. Takes minutes: the shells of all hosts share one machine's processors.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_hundred_fifty_six_hosts_launch_and_tear_down() {
        let fixture = SandboxFixture::with_hosts(256).await;
        let script = "with: script\ngate: none\nshell: \"echo here\"\n".to_owned();
        // A stop has `stop_grace` and 30 s to answer; here two processors answer for 256 hosts.
        let job = JobSpec {
            in_container: false,
            launch: script,
            top_level: "teardown: never\n".to_owned(),
            stop_grace: "300s",
            ..JobSpec::default()
        };
        let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("vast", &job));
        let mut started = std::time::Instant::now();
        for (words, expected) in [
            // Without following: 256 log streams are more than one machine's processors can serve.
            (&["up", path_str(&file), "--preflight", "off", "-d"][..], "256 ranks on 256 hosts"),
            (&["ps", path_str(&file)], "gpu256"),
            (&["down", path_str(&file)], "nothing is left"),
        ] {
            let ended = laptop.start(words).wait_for_exit_within(LIMIT).await;
            ended.assert_exit_code(0).assert_contains(expected);
            println!("{} of 256 hosts: {:?}", words[0], started.elapsed());
            started = std::time::Instant::now();
        }
        fixture.assert_clean_and_stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_dead_rank_stops_sixty_four_hosts_quickly() {
        let fixture = SandboxFixture::with_hosts(64).await;
        // Cheap ranks: one script per host, blocked in a read until a signal.
        let script = "with: script\ngate: none\nshell: |\n  mkfifo \"$BENCH/fifo.$RANK\" 2>/dev/null; trap 'exit 143' TERM\n  echo $$ >\"$BENCH/up.$RANK.new\"; mv \"$BENCH/up.$RANK.new\" \"$BENCH/up.$RANK\"\n  \
                      read -r code <\"$BENCH/fifo.$RANK\"; exit $code\n";
        let job = JobSpec { in_container: false, launch: script.to_owned(), stop_grace: "20s", ..JobSpec::default() };
        let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("many", &job));
        let mut up = laptop.start(&["up", path_str(&file)]);
        fixture.wait_for_ranks(64).await;
        up.wait_for_output("ready").await;
        let died = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
        let died = i64::try_from(died).expect("a time");
        std::fs::write(fixture.control_dir().join("fifo.40"), "7\n").expect("written");
        up.wait_for_exit().await.assert_exit_code(1).assert_recap("FAILED").assert_contains("FIRST     rank 40 on gpu41: exit 7");
        let events = laptop.read_journal();
        let output = |k: &EventKind| matches!(k, EventKind::RankExited { rank: 40, exit: Exit::Code(7), .. });
        assert!(events.iter().any(|e| output(&e.kind)), "its end is in the journal");
        let mut signalled = std::collections::BTreeMap::new();
        for event in &events {
            if let EventKind::RanksSignaled { host, .. } = &event.kind {
                signalled.entry(*host).or_insert(event.at - died);
            }
        }
        // The host of the rank that died gets no signal if its launcher has ended by then.
        signalled.remove(&40);
        assert_eq!(signalled.len(), 63);
        let slowest = signalled.values().max().copied().unwrap_or_default();
        let soon = two_seconds_under_load();
        assert!(slowest <= soon, "the last host was signalled {slowest} ms after the death, {soon} allowed");
        fixture.assert_clean_and_stop().await;
    }
}
