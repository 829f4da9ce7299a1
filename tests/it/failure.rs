//! A run that fails: who is named, who is stopped, and that nothing is left.

use orchestrate::event::{EventKind, Exit};

use crate::support::{Bench, Job, word};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rank_that_failed_is_named_and_the_others_are_stopped() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("fails", &Job { nproc: 2, ..Job::default() }));
    let up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(4).await;
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
    let died = events.iter().find_map(|e| match e.kind {
        EventKind::RankExited { rank: 3, exit: Exit::Code(7), when, .. } => Some(when),
        _ => None,
    });
    let died = died.expect("rank 3's end is in the journal");
    for host in 0..2 {
        let signalled = events.iter().find_map(|e| match &e.kind {
            EventKind::Signalled { host: h, signal } if *h == host && signal == "TERM" => Some(e.at),
            _ => None,
        });
        let after = signalled.expect("signalled") - died;
        assert!(after <= 2000, "host {host} was signalled {after} ms after the death");
    }
    for rank in 0..3 {
        let after = i128::try_from(bench.term(rank).expect("TERM arrived")).expect("small") / 1_000_000 - i128::from(died);
        assert!(after <= 2000, "rank {rank} saw TERM {after} ms after the death");
        assert!(String::from_utf8_lossy(&laptop.log(&format!("rank-{rank}.log"))).contains("saw TERM and saved"));
    }
    bench.done().await;
}
