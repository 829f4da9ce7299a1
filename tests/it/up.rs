//! A successful run: what the ranks receive, what the laptop gets, and that nothing is left.

use orchestrate::event::{Event, EventKind, Outcome, Phase};
use proptest::prelude::{Strategy, prop_oneof};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::support::{JobSpec, SandboxFixture, path_str, sha256_hex, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn successful_run_leaves_nothing() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("well", &JobSpec { nproc_per_node: 2, ..JobSpec::default() }));
    let up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(4).await;
    assert_eq!(fixture.containers(0).len(), 1, "a container while it runs");
    fixture.end_ranks(None, 0);
    let ended = up.wait_for_exit().await;
    ended.assert_exit_code(0).assert_recap("OK").assert_contains("4 ok  0 failed of 4");
    fixture.assert_no_leftovers().await;
    for rank in 0..4 {
        let expected = format!("rank {rank} of 4 on gpu0{}\nrank {rank} ends with 0\n", rank / 2 + 1);
        assert_eq!(String::from_utf8_lossy(&laptop.read_log(&format!("rank-{rank}.log"))), expected);
    }
    let kinds = laptop.journal_kinds();
    assert!(matches!(kinds.last(), Some(EventKind::RunFinished { outcome: Outcome::Ok, .. })), "{:?}", kinds.last());
    // Master first: the workers start after the master's port listens.
    let phase = |wanted: Phase| kinds.iter().position(|k| matches!(k, EventKind::PhaseStarted { phase } if *phase == wanted));
    assert!(phase(Phase::Container) < phase(Phase::Master) && phase(Phase::Master) < phase(Phase::Workers), "the order of phases");
    // Only this user can read the journal and the logs.
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |name: &str| std::fs::metadata(laptop.only_run_dir().join(name)).expect("a file").permissions().mode() & 0o777;
    assert_eq!([mode("journal.jsonl"), mode("logs/rank-0.log"), mode("report.json")], [0o600; 3]);
    fixture.assert_clean_and_stop().await;
}

/// With `ready_when` a run is ready when a rank has written that line, not when every rank runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_is_ready_when_a_line_says_so() {
    let fixture = SandboxFixture::with_hosts(2).await;
    fixture
        .set_payload_setup("if [ \"$RANK\" = 0 ]; then until [ -e \"$BENCH/load\" ]; do sleep 0.1; done; echo \"model loaded by 2\"; fi");
    let job = JobSpec { launch: "ready_when: 'loaded by {{ world_size }}$'\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("ready", &job));
    let mut up = laptop.start(&["up", path_str(&file), "--progress", "plain"]);
    up.wait_for_output("rank 0 of 2 on gpu01").await;
    let count = |is: fn(&EventKind) -> bool| laptop.journal_kinds().iter().filter(|kind| is(kind)).count();
    let is_ready = || count(|kind| matches!(kind, EventKind::Ready)) > 0;
    let all_started = || count(|kind| matches!(kind, EventKind::RankStarted { .. })) == 2;
    wait_until("both ranks run", async || all_started().then_some(())).await;
    assert!(!is_ready(), "every rank runs, and none has loaded its model");
    std::fs::write(fixture.control_dir().join("load"), "").expect("written");
    wait_until("the run is ready", async || is_ready().then_some(())).await;
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_match_to_the_last_byte() {
    let fixture = SandboxFixture::with_hosts(1).await;
    // Every byte value, an unfinished last line, terminal escapes, half a character, and much of it.
    fixture.set_payload_setup(
        "{ i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i + 1)); done; head -c 3000000 /dev/urandom\n\
         printf '\\033[2Jclear\\r\\n\\344\\270'; } >\"$BENCH/bytes.$RANK\"; cat \"$BENCH/bytes.$RANK\"; echo more >&2; printf 'no end of line'",
    );
    let job = JobSpec { nproc_per_node: 2, top_level: "teardown: always\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("bytes", &job));
    let up = laptop.start(&["up", path_str(&file), "--progress", "plain"]);
    fixture.wait_for_ranks(2).await;
    fixture.end_ranks(None, 0);
    let ended = up.wait_for_exit().await;
    ended.assert_exit_code(0);
    assert!(!ended.stderr.contains('\u{1b}'), "no escape of a rank reaches a terminal");
    for rank in 0..2 {
        let output = std::fs::read(fixture.control_dir().join(format!("bytes.{rank}"))).expect("the output of the rank");
        let (first, last) = (format!("rank {rank} of 2 on gpu01\n"), format!("more\nno end of linerank {rank} ends with 0\n"));
        let log = [first.as_bytes(), &output, last.as_bytes()].concat();
        assert!(log.len() > 3_000_000);
        assert_eq!(sha256_hex(&laptop.read_log(&format!("rank-{rank}.log"))), sha256_hex(&log), "rank {rank}");
    }
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gpu_metrics_and_processes_are_sampled() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("gpus", &JobSpec { nproc_per_node: 2, ..JobSpec::default() }));
    let up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(4).await;
    let samples = || -> Vec<EventKind> {
        let text = std::fs::read_to_string(laptop.only_run_dir().join("gpus.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok()).map(|event| event.kind).collect()
    };
    wait_until("both hosts report GPUs, GPU processes and host metrics", async || {
        let seen = samples();
        let of = |wanted: u32| {
            let gpus = seen.iter().any(|k| matches!(k, EventKind::Gpus { host, gpus } if *host == wanted && gpus.len() == 2 && gpus.iter().all(|g| g.memory_total.is_some() && g.throttle_reasons == Some(0))));
            let ranks = seen.iter().any(|k| {
                matches!(k, EventKind::GpuProcesses { host, processes } if *host == wanted && processes.len() == 2 && processes.iter().all(|p| p.belongs_to_run && !p.user.is_empty()))
            });
            let rest = seen.iter().any(|k| matches!(k, EventKind::HostMetrics { host, metrics } if *host == wanted && metrics.memory_available > 0));
            gpus && ranks && rest
        };
        (of(0) && of(1)).then_some(())
    })
    .await;
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK");
    // No reader is left, so the command stops asking the hosts.
    fixture.assert_no_leftovers().await;
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_without_final_newline_is_complete() {
    let fixture = SandboxFixture::with_hosts(1).await;
    fixture.set_payload_setup("printf 'the last words'; exit 0");
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("words", &JobSpec::default()));
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0).assert_contains("the last words");
    assert_eq!(laptop.read_log("rank-0.log"), b"rank 0 of 1 on gpu01\nthe last words");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_runs_once_per_host() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let shell = "with: script\nshell: |\n  set -e\n  echo \"node $NODE_RANK of $NNODES, master $MASTER_ADDR:$MASTER_PORT, $NPROC_PER_NODE each\"\n  \
                 echo 'a \"quoted\" $word' && test \"$RANK\" = \"$ORCH_NODE_RANK\"\n  exit 0\n";
    for (name, contained) in [("script", true), ("bare", false)] {
        let job = JobSpec { launch: shell.to_owned(), in_container: contained, ..JobSpec::default() };
        let (laptop, file) = (fixture.new_laptop(name), fixture.write_inventory(name, &job));
        laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0).assert_recap("OK").assert_contains("2 ok  0 failed of 2");
        for rank in 0..2 {
            let log = String::from_utf8(laptop.read_log(&format!("rank-{rank}.log"))).expect("text");
            assert_eq!(log, format!("node {rank} of 2, master 127.0.0.1:{}, 1 each\na \"quoted\" $word\n", fixture.master_port), "{name}");
        }
        fixture.assert_no_leftovers().await;
    }
    fixture.assert_clean_and_stop().await;
}

/// Text that some layer between here and the rank might change.
fn tricky_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -~]{1,6}".prop_map(|s| s),
        proptest::sample::select(vec![
            "'", "\"", "\\", "$HOME", "$(id)", "`id`", "\n", "\t", "中文", "é", "🚀", "{{", "}}", "{%", "%s", "*", "~", "#", "!", "&&",
            ";", "'\\''", "\r", "\u{1}", "\u{7f}", "--", "-n", "=", "\u{feff}", "\u{200b}", "\u{301}", "EOF", "${x}", "\\n", " ", "  ",
        ])
        .prop_map(str::to_owned),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// As a YAML string with exactly this meaning; `{{` is escaped.
fn to_yaml_string(text: &str) -> String {
    serde_json::to_string(&text.replace("{{", "{{ '{{' }}")).expect("text").replace('\u{7f}', "\\u007f").replace('\u{feff}', "\\ufeff")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn container_arguments_arrive_byte_for_byte() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let mut runner = TestRunner::deterministic();
    let mut next = || tricky_text().new_tree(&mut runner).expect("a text").current();
    let arguments: Vec<String> = ["", "'", "$", "\n", "\\", "a cat's \"song\" $5", "拍摄一只猫\n第二行"]
        .map(str::to_owned)
        .into_iter()
        .chain(std::iter::repeat_with(&mut next).take(120))
        .collect();
    let ours: Vec<String> = std::iter::repeat_with(&mut next).take(40).collect();
    let theirs: Vec<String> = std::iter::repeat_with(&mut next).take(40).collect();
    let dump = fixture.control_dir().join("dump");
    std::fs::write(
        &dump,
        "printf '%s\\000' \"$@\" >\"$BENCH/argv.$1\"\nshift\ni=0\nwhile [ $i -lt 40 ]; do eval \"printf '%s\\\\000' \\\"\\$E$i\\\" \\\"\\$C$i\\\"\"; i=$((i + 1)); done >\"$BENCH/env\"\n",
    )
    .expect("written");
    for contained in [true, false] {
        let name = if contained { "inside" } else { "bare" };
        let list: Vec<String> = arguments.iter().map(|a| to_yaml_string(a)).collect();
        let command = format!("command: [--no_python, /bin/sh, \"{}\", {name}, {}]", dump.display(), list.join(", "));
        let lines = |letter: char, values: &[String]| {
            values.iter().enumerate().map(|(i, v)| format!("{letter}{i}: {}\n", to_yaml_string(v))).collect::<String>()
        };
        let (mut env, mut container) = (lines('E', &ours), format!("env:\n  {}", lines('C', &theirs).replace("\nC", "\n  C")));
        if !contained {
            env.push_str(&lines('C', &theirs));
            container.clear();
        }
        let job = JobSpec { in_container: contained, env, container, launch: command, ..JobSpec::default() };
        let (laptop, file) = (fixture.new_laptop(name), fixture.write_inventory(name, &job));
        laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0);
        let read = |name: &str| {
            let text = String::from_utf8(std::fs::read(fixture.control_dir().join(name)).expect("dumped")).expect("UTF-8");
            text.strip_suffix('\0').expect("an end").split('\0').map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(read(&format!("argv.{name}"))[1..], arguments, "{name}");
        let variables: Vec<String> = ours.iter().zip(&theirs).flat_map(|(e, c)| [e.clone(), c.clone()]).collect();
        assert_eq!(read("env"), variables, "{name}");
        fixture.assert_no_leftovers().await;
    }
    fixture.assert_clean_and_stop().await;
}

/// The files below a directory that contain these bytes.
fn files_containing(dir: &std::path::Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_symlink() {
            continue;
        } else if path.is_dir() {
            found.extend(files_containing(&path, bytes));
        } else if std::fs::read(&path).is_ok_and(|text| text.windows(bytes.len()).any(|w| w == bytes)) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_reaches_only_the_rank() {
    const SECRET_VALUE: &str = "hf_s3cr3t'\"$HOME\\ 猫";
    let core = b"hf_s3cr3t";
    for contained in [true, false] {
        let fixture = SandboxFixture::with_hosts(2).await;
        fixture.set_payload_setup("printf %s \"$TOKEN\" | sha256sum");
        let job = JobSpec { in_container: contained, top_level: "secrets: [TOKEN]\n".to_owned(), ..JobSpec::default() };
        let (mut laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("secret", &job));
        laptop.env_vars.insert("TOKEN".to_owned(), SECRET_VALUE.to_owned());
        let up = laptop.start(&["up", path_str(&file), "--progress", "plain", "-vv"]);
        fixture.wait_for_ranks(2).await;
        for pid in fixture.sandbox.processes() {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            assert!(!line.windows(core.len()).any(|w| w == core), "in an argument vector: {}", String::from_utf8_lossy(&line));
        }
        assert_eq!(files_containing(fixture.sandbox.dir(), core), Vec::<String>::new(), "on a host's disk");
        let run = laptop.only_run_dir().file_name().expect("an id").to_string_lossy().into_owned();
        assert!(!std::path::Path::new(&format!("/dev/shm/.orch-{run}")).exists(), "the file in memory is gone once read");
        fixture.end_ranks(None, 0);
        up.wait_for_exit().await.assert_exit_code(0).assert_not_contains("hf_s3cr3t");
        assert_eq!(files_containing(&laptop.home, core), Vec::<String>::new(), "on the laptop");
        for rank in 0..2 {
            let log = String::from_utf8(laptop.read_log(&format!("rank-{rank}.log"))).expect("text");
            assert!(log.contains(&sha256_hex(SECRET_VALUE.as_bytes())), "{log}");
        }
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn printed_secret_is_masked_on_terminal() {
    let fixture = SandboxFixture::with_hosts(1).await;
    fixture.set_payload_setup("echo \"the token is $TOKEN.\"; exit 3");
    let job = JobSpec { top_level: "secrets: [TOKEN]\n".to_owned(), ..JobSpec::default() };
    let (mut laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("printed", &job));
    laptop
        .run(&["up", path_str(&file)])
        .await
        .assert_exit_code(2)
        .assert_contains("TOKEN not set in this environment")
        .assert_contains("export TOKEN");
    assert!(laptop.run_dirs().is_empty(), "nothing was started");
    laptop.env_vars.insert("TOKEN".to_owned(), "open-sesame-42".to_owned());
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(1).assert_not_contains("open-sesame-42").assert_contains("the token is ");
    assert!(String::from_utf8_lossy(&laptop.read_log("rank-0.log")).contains("open-sesame-42"), "the file keeps what was written");
    let found = files_containing(&laptop.only_run_dir(), b"open-sesame-42");
    assert!(found.len() == 1 && found[0].ends_with("rank-0.log"), "{found:?}");
    fixture.assert_clean_and_stop().await;
}
