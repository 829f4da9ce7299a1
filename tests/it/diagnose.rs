//! The diagnosis of a failed run in the recap, in `report.json` and in the JSON stream.

use crate::support::{JobSpec, SandboxFixture, path_str, wait_until};

const CUSTOM_RULES: &str = "- id: quota\n  re: 'quota of (?P<user>\\w+) exceeded'\n  what: { en: 'no space for {user}', zh: '{user} 的配额已满' }\n  \
                     why: 'everybody has 1 TiB'\n  next: 'delete old checkpoints on {on}'\n";
/// Rank 3 fails once the others are up; they lose their peer.
const FAILING_PAYLOAD: &str = r#"
if [ "$RANK" = 3 ]; then
  for r in 0 1 2; do until [ -e "$BENCH/there.$r" ]; do sleep 0.05; done; done
  while [ -e "$BENCH/hold" ]; do sleep 0.05; done
  echo 'quota of li exceeded'
  exit 1
fi
trap 'echo "RuntimeError: [./gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:61059"; exit 1' TERM
: >"$BENCH/there.$RANK"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_rule_names_cause_and_affected_ranks() {
    let fixture = SandboxFixture::with_hosts(2).await;
    fixture.set_payload_setup(FAILING_PAYLOAD);
    let file = fixture.write_inventory("why", &JobSpec { nproc_per_node: 2, ..JobSpec::default() });
    std::fs::write(file.with_file_name("rules.yaml"), CUSTOM_RULES).expect("written");
    let text = std::fs::read_to_string(&file).expect("the inventory");
    std::fs::write(&file, format!("{text}diagnosis: ./rules.yaml\n")).expect("written");
    let laptop = fixture.new_laptop("laptop");
    let ended = laptop.run(&["up", path_str(&file)]).await;
    ended
        .assert_exit_code(1)
        .assert_recap("FAILED")
        .assert_contains("  CAUSE     rank 3 on gpu02: no space for li\n")
        .assert_contains("  why       everybody has 1 TiB\n")
        .assert_contains("  do        delete old checkpoints on gpu02\n")
        .assert_contains("  affected  ranks 0-2 logged errors that followed from it\n");
    let report = std::fs::read_to_string(laptop.only_run_dir().join("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let found = &report["findings"][0];
    assert_eq!((&found["rule"], &found["ranks"], &found["hosts"]), (&"quota".into(), &vec![3].into(), &vec!["gpu02"].into()));
    assert_eq!(found["what"]["zh"], "li 的配额已满");
    fixture.assert_no_leftovers().await;

    let forget_ranks =
        || (0..3).for_each(|rank| std::fs::remove_file(fixture.control_dir().join(format!("there.{rank}"))).expect("removed"));
    forget_ranks();
    let ended = fixture.new_laptop("chinese").run(&["up", path_str(&file), "--lang", "zh"]).await;
    ended.assert_exit_code(1).assert_contains("gpu02 上的 rank 3：li 的配额已满");

    forget_ranks();
    let ended = fixture.new_laptop("program").run(&["up", path_str(&file), "--progress", "json"]).await;
    let lines: Vec<serde_json::Value> =
        ended.assert_exit_code(1).stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let at = lines.iter().position(|line| line["kind"] == "finding").expect("a finding");
    assert_eq!(lines[at]["rule"], "quota");
    assert_eq!(lines[at + 1]["kind"], "run-finished", "just before the last event: {}", lines[at + 1]);

    // `logs` has copied every line; `down` is sent none of them again.
    forget_ranks();
    let later = fixture.new_laptop("later");
    let hold = fixture.control_dir().join("hold");
    std::fs::write(&hold, "").expect("written");
    later.run(&["up", path_str(&file), "-d"]).await.assert_exit_code(0);
    std::fs::remove_file(hold).expect("removed");
    wait_until("the copy of the log has the line", async || {
        later.run(&["logs", path_str(&file)]).await.stdout.contains("quota of li exceeded").then_some(())
    })
    .await;
    later.run(&["down", path_str(&file), "--yes"]).await.assert_contains("  CAUSE     rank 3 on gpu02: no space for li\n");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_rule_is_reported_but_down_works() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let file = fixture.write_inventory("broken", &JobSpec::default());
    std::fs::write(file.with_file_name("rules.yaml"), "- id: quota\n  re: 'quota ('\n  what: full\n").expect("written");
    let text = std::fs::read_to_string(&file).expect("the inventory");
    std::fs::write(&file, format!("{text}diagnosis: ./rules.yaml\n")).expect("written");
    let laptop = fixture.new_laptop("laptop");
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(2).assert_contains("./rules.yaml:2:7: [0].re: unclosed group");
    laptop
        .run(&["down", path_str(&file), "--yes"])
        .await
        .assert_exit_code(0)
        .assert_contains("only the built-in rules explain a failure: ./rules.yaml:2:7: [0].re: unclosed group\n");
    std::fs::write(&file, format!("{text}diagnosis: ./no-such.yaml\n")).expect("written");
    laptop
        .run(&["up", path_str(&file)])
        .await
        .assert_exit_code(2)
        .assert_contains("./no-such.yaml: cannot be read")
        .assert_contains("relative to the inventory");
    fixture.assert_clean_and_stop().await;
}
