//! A run that hangs: who is waited for is named, and the gang is stopped only where the inventory says so.

use orchestrate::event::{EventKind, Sign};
use orchestrate::sandbox::Faults;

use crate::support::{Bench, Job, word};

/// Rank 3 loads for as long as the test lives; the others wait for it.
const HANGS: &str = r#"
echo "rank $RANK loads the model"
if [ "$RANK" = 3 ]; then
  until [ -e "$BENCH/loaded" ]; do sleep 0.05; done
fi
echo "rank $RANK joins the group"
"#;

/// Nobody sees what the GPUs do: those of the sandbox draw the power of work, which after three looks speaks against any hang.
fn blind(bench: &Bench) {
    let smi = r#"case "$*" in *--query-gpu*) exit 9 ;; esac; exec "$SANDBOX_HOST/bin/nvidia-smi" "$@""#;
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &Faults { programs: [("nvidia-smi".to_owned(), smi.to_owned())].into(), ..Faults::default() });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rank_that_hangs_before_init_is_named_and_the_run_goes_on() {
    let bench = Bench::hosts(2).await;
    blind(&bench);
    bench.job(HANGS);
    let job = Job { nproc: 2, top: "on_failure: { hang_after: 2s }\n".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("hangs", &job));
    let mut up = laptop.start(&["up", word(&file)]);
    up.says("HANG waiting for: rank 3 on gpu02").await;
    up.says("| rank 3 has not; it wrote last: rank 3 loads the model").await;
    std::fs::write(bench.bench().join("loaded"), "").expect("written");
    up.says("it goes on").await;
    bench.ranks_up(4).await;
    bench.end(None, 0);
    let ended = up.end().await;
    ended.code(0).recap("OK");
    let hangs = |kind: &EventKind| matches!(kind, EventKind::Hang(hang) if hang.sign == Sign::Missing && hang.ranks == [3]);
    assert_eq!(laptop.kinds().iter().filter(|kind| hangs(kind)).count(), 1, "told once");
    assert!(!laptop.kinds().iter().any(|kind| matches!(kind, EventKind::Signalled { .. })), "it only warns");
    let report = std::fs::read_to_string(laptop.run_dir().join("report.json")).expect("a report");
    assert!(!report.contains("hang-"), "what is over is no finding:\n{report}");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_gang_is_stopped_where_the_inventory_says_so() {
    let bench = Bench::hosts(2).await;
    blind(&bench);
    let job = Job { nproc: 2, top: "on_failure: { hang: stop, hang_after: 3s }\n".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("silent", &job));
    let ended = laptop.run(&["up", word(&file), "--progress", "json"]).await;
    ended
        .code(1)
        .recap("FAILED")
        .says("the run seems to hang: no rank has written for")
        .says("CAUSE     gpu[01-02]: no rank has written for");
    let lines: Vec<serde_json::Value> = ended.out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let hang = lines.iter().find(|line| line["kind"] == "hang").expect("told as it is found");
    assert_eq!(hang["sign"], "silent");
    assert_eq!(lines.iter().find(|line| line["kind"] == "finding").expect("a finding")["rule"], "hang-silent");
    for rank in 0..4 {
        assert!(bench.term(rank).is_some(), "rank {rank} was given time to save");
    }
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stacks_tell_of_every_rank_and_disturb_none() {
    let bench = Bench::hosts(2).await;
    let job = Job { nproc: 2, ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("stacks", &job));
    laptop.run(&["stacks", word(&file)]).await.code(0).says("no rank of this name is on any host");
    let up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(4).await;
    let told = laptop.run(&["stacks", word(&file), "--json"]).await;
    let lines: Vec<serde_json::Value> = told.code(0).out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let who: Vec<(u64, &str)> =
        lines.iter().map(|line| (line["rank"].as_u64().expect("a number"), line["host"].as_str().expect("a name"))).collect();
    assert_eq!(who, [(0, "gpu01"), (1, "gpu01"), (2, "gpu02"), (3, "gpu02")]);
    for line in &lines {
        assert!(line["command"].as_str().is_some_and(|command| command.contains("/payload")), "the rank, not its wrapper: {line}");
        assert!(line["stack"].as_array().is_some_and(|stack| !stack.is_empty()), "{line}");
        assert!(["py-spy", "gdb", "kernel"].contains(&line["how"].as_str().expect("text")), "{line}");
    }
    let text = laptop.run(&["stacks", word(&file)]).await;
    text.code(0).says("---- rank");
    bench.end(None, 0);
    up.end().await.code(0).recap("OK");
    bench.done().await;
}
