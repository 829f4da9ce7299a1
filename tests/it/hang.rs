//! A hung run: the ranks that the others wait for are named, and the gang is stopped only if the inventory asks for it.

use orchestrate::event::{EventKind, HangSymptom};
use orchestrate::sandbox::Faults;

use crate::support::{JobSpec, SandboxFixture, path_str};

/// Rank 3 loads as long as the test runs; the others wait for it.
const HANGING_PAYLOAD: &str = r#"
echo "rank $RANK loads the model"
if [ "$RANK" = 3 ]; then
  until [ -e "$BENCH/loaded" ]; do sleep 0.05; done
fi
echo "rank $RANK joins the group"
"#;

/// Hides the GPU metrics: the sandbox's GPUs draw the power of a working job, which after three samples rules out a hang.
fn hide_gpu_metrics(fixture: &SandboxFixture) {
    let smi = r#"case "$*" in *--query-gpu*) exit 9 ;; esac; exec "$SANDBOX_HOST/bin/nvidia-smi" "$@""#;
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &Faults { programs: [("nvidia-smi".to_owned(), smi.to_owned())].into(), ..Faults::default() });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_rank_is_named_and_run_continues() {
    let fixture = SandboxFixture::with_hosts(2).await;
    hide_gpu_metrics(&fixture);
    fixture.set_payload_setup(HANGING_PAYLOAD);
    let job = JobSpec { nproc_per_node: 2, top_level: "on_failure: { hang_after: 2s }\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("hangs", &job));
    let mut up = laptop.start(&["up", path_str(&file)]);
    up.wait_for_output("HANG waiting for: rank 3 on gpu02").await;
    up.wait_for_output("| rank 3 has not; it wrote last: rank 3 loads the model").await;
    std::fs::write(fixture.control_dir().join("loaded"), "").expect("written");
    up.wait_for_output("the run is making progress again").await;
    fixture.wait_for_ranks(4).await;
    fixture.end_ranks(None, 0);
    let ended = up.wait_for_exit().await;
    ended.assert_exit_code(0).assert_recap("OK");
    let hangs = |kind: &EventKind| matches!(kind, EventKind::Hang(hang) if hang.symptom == HangSymptom::RankMissing && hang.ranks == [3]);
    assert_eq!(laptop.journal_kinds().iter().filter(|kind| hangs(kind)).count(), 1, "reported once");
    assert!(!laptop.journal_kinds().iter().any(|kind| matches!(kind, EventKind::RanksSignaled { .. })), "it only warns");
    let report = std::fs::read_to_string(laptop.only_run_dir().join("report.json")).expect("a report");
    assert!(!report.contains("hang-"), "an ended hang is not a finding:\n{report}");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_gang_is_stopped_when_configured() {
    let fixture = SandboxFixture::with_hosts(2).await;
    hide_gpu_metrics(&fixture);
    let job = JobSpec { nproc_per_node: 2, top_level: "on_failure: { hang: stop, hang_after: 15s }\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("silent", &job));
    let ended = laptop.run(&["up", path_str(&file), "--progress", "json"]).await;
    ended
        .assert_exit_code(1)
        .assert_recap("FAILED")
        .assert_contains("the run seems to hang: no rank has written for")
        .assert_contains("CAUSE     gpu[01-02]: no rank has written for");
    let lines: Vec<serde_json::Value> = ended.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let hang = lines.iter().find(|line| line["kind"] == "hang").expect("a hang event");
    assert_eq!(hang["symptom"], "silent");
    assert_eq!(lines.iter().find(|line| line["kind"] == "finding").expect("a finding")["rule"], "hang-silent");
    for rank in 0..4 {
        assert!(fixture.term_received_at(rank).is_some(), "rank {rank} was given time to save");
    }
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stacks_show_every_rank_and_disturb_none() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { nproc_per_node: 2, ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("stacks", &job));
    laptop.run(&["stacks", path_str(&file)]).await.assert_exit_code(0).assert_contains("no rank is on any host");
    let up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(4).await;
    let output = laptop.run(&["stacks", path_str(&file), "--json"]).await;
    let lines: Vec<serde_json::Value> =
        output.assert_exit_code(0).stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ranks: Vec<(u64, &str)> =
        lines.iter().map(|line| (line["rank"].as_u64().expect("a number"), line["host"].as_str().expect("a name"))).collect();
    assert_eq!(ranks, [(0, "gpu01"), (1, "gpu01"), (2, "gpu02"), (3, "gpu02")]);
    assert!(lines.iter().all(|line| line["format"] == "stacks 1"));
    let two = laptop.run(&["stacks", path_str(&file), "--json", "--rank", "r0,host:gpu02"]).await;
    assert_eq!(two.assert_exit_code(0).stdout.lines().count(), 3);
    let none = laptop.run(&["stacks", path_str(&file), "--rank", "9"]).await;
    none.assert_exit_code(0).assert_contains("none of these ranks runs: ranks 0-3 have stacks");
    for line in &lines {
        assert!(line["command"].as_str().is_some_and(|command| command.contains("/payload")), "the rank, not its wrapper: {line}");
        assert!(line["stack"].as_array().is_some_and(|stack| !stack.is_empty()), "{line}");
        assert!(["py-spy", "gdb", "kernel"].contains(&line["how"].as_str().expect("text")), "{line}");
    }
    let text = laptop.run(&["stacks", path_str(&file)]).await;
    text.assert_exit_code(0).assert_contains("---- rank");
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK");
    fixture.assert_clean_and_stop().await;
}
