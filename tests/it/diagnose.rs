//! Why a run failed, as a person and as a program are told it.

use crate::support::{Bench, Job, word};

const RULES: &str = "- id: quota\n  re: 'quota of (?P<user>\\w+) exceeded'\n  what: { en: 'no space for {user}', zh: '{user} 的配额已满' }\n  \
                     why: 'everybody has 1 TiB'\n  next: 'delete old checkpoints on {on}'\n";
/// Rank 3 fails once the others are there; they lose it.
const FAILS: &str = r#"
if [ "$RANK" = 3 ]; then
  for r in 0 1 2; do until [ -e "$BENCH/there.$r" ]; do sleep 0.05; done; done
  echo 'quota of li exceeded'
  exit 1
fi
trap 'echo "RuntimeError: [./gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:61059"; exit 1' TERM
: >"$BENCH/there.$RANK"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cause_is_named_by_a_users_rule_and_the_effects_beneath() {
    let bench = Bench::hosts(2).await;
    bench.job(FAILS);
    let file = bench.inventory("why", &Job { nproc: 2, ..Job::default() });
    std::fs::write(file.with_file_name("rules.yaml"), RULES).expect("written");
    let text = std::fs::read_to_string(&file).expect("the inventory");
    std::fs::write(&file, format!("{text}diagnosis: ./rules.yaml\n")).expect("written");
    let laptop = bench.laptop("laptop");
    let ended = laptop.run(&["up", word(&file)]).await;
    ended
        .code(1)
        .recap("FAILED")
        .says("  CAUSE     rank 3 on gpu02: no space for li\n")
        .says("  why       everybody has 1 TiB\n")
        .says("  do        delete old checkpoints on gpu02\n")
        .says("  felt by   ranks 0-2\n");
    let report = std::fs::read_to_string(laptop.run_dir().join("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let found = &report["findings"][0];
    assert_eq!((&found["rule"], &found["ranks"], &found["hosts"]), (&"quota".into(), &vec![3].into(), &vec!["gpu02"].into()));
    assert_eq!(found["what"]["zh"], "li 的配额已满");
    bench.nothing_left().await;

    let ended = bench.laptop("chinese").run(&["up", word(&file), "--lang", "zh"]).await;
    ended.code(1).says("rank 3 on gpu02: li 的配额已满");

    let ended = bench.laptop("program").run(&["up", word(&file), "--progress", "json"]).await;
    let lines: Vec<serde_json::Value> = ended.code(1).out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let at = lines.iter().position(|line| line["kind"] == "finding").expect("a finding");
    assert_eq!(lines[at]["rule"], "quota");
    assert_eq!(lines[at + 1]["kind"], "run-finished", "just before the last event: {}", lines[at + 1]);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_rule_is_told_with_its_line_and_does_not_keep_from_tearing_down() {
    let bench = Bench::hosts(1).await;
    let file = bench.inventory("broken", &Job::default());
    std::fs::write(file.with_file_name("rules.yaml"), "- id: quota\n  re: 'quota ('\n  what: full\n").expect("written");
    let text = std::fs::read_to_string(&file).expect("the inventory");
    std::fs::write(&file, format!("{text}diagnosis: ./rules.yaml\n")).expect("written");
    let laptop = bench.laptop("laptop");
    laptop.run(&["up", word(&file)]).await.code(2).says("./rules.yaml:2:7: [0].re: unclosed group");
    laptop.run(&["down", word(&file), "--yes"]).await.code(0);
    std::fs::write(&file, format!("{text}diagnosis: ./no-such.yaml\n")).expect("written");
    laptop.run(&["up", word(&file)]).await.code(2).says("./no-such.yaml: cannot be read").says("relative to the inventory");
    bench.done().await;
}
