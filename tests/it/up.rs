//! A run that goes well: what arrives at the ranks, what comes back, and that nothing is left.

use orchestrate::event::{Event, EventKind, Outcome, Phase};
use proptest::prelude::{Strategy, prop_oneof};
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::support::{Bench, Job, sha256, until, word};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_well_and_leaves_nothing() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("well", &Job { nproc: 2, ..Job::default() }));
    let up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(4).await;
    assert_eq!(bench.containers(0).len(), 1, "a container while it runs");
    bench.end(None, 0);
    let ended = up.end().await;
    ended.code(0).recap("OK").says("4 ok  0 failed of 4");
    bench.nothing_left().await;
    for rank in 0..4 {
        let expected = format!("rank {rank} of 4 on gpu0{}\nrank {rank} ends with 0\n", rank / 2 + 1);
        assert_eq!(String::from_utf8_lossy(&laptop.log(&format!("rank-{rank}.log"))), expected);
    }
    let kinds = laptop.kinds();
    assert!(matches!(kinds.last(), Some(EventKind::RunFinished { outcome: Outcome::Ok, .. })), "{:?}", kinds.last());
    // Master first: the workers begin after the master's port listens.
    let phase = |wanted: Phase| kinds.iter().position(|k| matches!(k, EventKind::PhaseStarted { phase } if *phase == wanted));
    assert!(phase(Phase::Container) < phase(Phase::Master) && phase(Phase::Master) < phase(Phase::Workers), "the order of phases");
    // The journal is for this user only, and so are the logs.
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |name: &str| std::fs::metadata(laptop.run_dir().join(name)).expect("a file").permissions().mode() & 0o777;
    assert_eq!([mode("journal.jsonl"), mode("logs/rank-0.log"), mode("report.json")], [0o600; 3]);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_equal_to_the_last_byte() {
    let bench = Bench::hosts(1).await;
    // Every byte there is, a line without an end, terminal escapes, half a character, much of it.
    bench.job(
        "{ i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i + 1)); done; head -c 3000000 /dev/urandom\n\
         printf '\\033[2Jclear\\r\\n\\344\\270'; } >\"$BENCH/bytes.$RANK\"; cat \"$BENCH/bytes.$RANK\"; echo more >&2; printf 'no end of line'",
    );
    let job = Job { nproc: 2, top: "teardown: always\n".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("bytes", &job));
    let up = laptop.start(&["up", word(&file), "--progress", "plain"]);
    bench.ranks_up(2).await;
    bench.end(None, 0);
    let ended = up.end().await;
    ended.code(0);
    assert!(!ended.err.contains('\u{1b}'), "no escape of a rank reaches a terminal");
    for rank in 0..2 {
        let said = std::fs::read(bench.bench().join(format!("bytes.{rank}"))).expect("what the rank said");
        let (first, last) = (format!("rank {rank} of 2 on gpu01\n"), format!("more\nno end of linerank {rank} ends with 0\n"));
        let log = [first.as_bytes(), &said, last.as_bytes()].concat();
        assert!(log.len() > 3_000_000);
        assert_eq!(sha256(&laptop.log(&format!("rank-{rank}.log"))), sha256(&log), "rank {rank}");
    }
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gpus_and_what_runs_on_them_are_seen_while_it_runs() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("gpus", &Job { nproc: 2, ..Job::default() }));
    let up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(4).await;
    let samples = || -> Vec<EventKind> {
        let text = std::fs::read_to_string(laptop.run_dir().join("gpus.jsonl")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok()).map(|event| event.kind).collect()
    };
    until("both hosts tell of their GPUs, the ranks on them and themselves", async || {
        let seen = samples();
        let of = |wanted: u32| {
            let gpus = seen.iter().any(|k| matches!(k, EventKind::Gpus { host, gpus } if *host == wanted && gpus.len() == 2 && gpus.iter().all(|g| g.memory_total.is_some() && g.reasons == Some(0))));
            let ranks = seen.iter().any(|k| {
                matches!(k, EventKind::GpuProcesses { host, processes } if *host == wanted && processes.len() == 2 && processes.iter().all(|p| p.ours && !p.user.is_empty()))
            });
            let rest = seen.iter().any(|k| matches!(k, EventKind::Vitals { host, vitals } if *host == wanted && vitals.memory_available > 0));
            gpus && ranks && rest
        };
        (of(0) && of(1)).then_some(())
    })
    .await;
    bench.end(None, 0);
    up.end().await.code(0).recap("OK");
    // Nobody reads any more, so nobody goes on asking.
    bench.nothing_left().await;
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_without_a_last_newline_is_whole() {
    let bench = Bench::hosts(1).await;
    bench.job("printf 'the last words'; exit 0");
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("words", &Job::default()));
    laptop.run(&["up", word(&file)]).await.code(0).says("the last words");
    assert_eq!(laptop.log("rank-0.log"), b"rank 0 of 1 on gpu01\nthe last words");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_runs_once_a_host() {
    let bench = Bench::hosts(2).await;
    let shell = "with: script\nshell: |\n  set -e\n  echo \"node $NODE_RANK of $NNODES, master $MASTER_ADDR:$MASTER_PORT, $NPROC_PER_NODE each\"\n  \
                 echo 'a \"quoted\" $word' && test \"$RANK\" = \"$ORCH_NODE_RANK\"\n  exit 0\n";
    for (name, contained) in [("script", true), ("bare", false)] {
        let job = Job { launch: shell.to_owned(), contained, ..Job::default() };
        let (laptop, file) = (bench.laptop(name), bench.inventory(name, &job));
        laptop.run(&["up", word(&file)]).await.code(0).recap("OK").says("2 ok  0 failed of 2");
        for rank in 0..2 {
            let log = String::from_utf8(laptop.log(&format!("rank-{rank}.log"))).expect("text");
            assert_eq!(log, format!("node {rank} of 2, master 127.0.0.1:{}, 1 each\na \"quoted\" $word\n", bench.port), "{name}");
        }
        bench.nothing_left().await;
    }
    bench.done().await;
}

/// Text that some layer between here and the rank would like to change.
fn nasty() -> impl Strategy<Value = String> {
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

/// As a text of YAML that means just this: a template's opening is spelled as the product says.
fn yaml(text: &str) -> String {
    serde_json::to_string(&text.replace("{{", "{{ '{{' }}")).expect("text").replace('\u{7f}', "\\u007f").replace('\u{feff}', "\\ufeff")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_and_variables_arrive_byte_for_byte() {
    let bench = Bench::hosts(1).await;
    let mut runner = TestRunner::deterministic();
    let mut next = || nasty().new_tree(&mut runner).expect("a text").current();
    let arguments: Vec<String> = ["", "'", "$", "\n", "\\", "a cat's \"song\" $5", "拍摄一只猫\n第二行"]
        .map(str::to_owned)
        .into_iter()
        .chain(std::iter::repeat_with(&mut next).take(120))
        .collect();
    let ours: Vec<String> = std::iter::repeat_with(&mut next).take(40).collect();
    let theirs: Vec<String> = std::iter::repeat_with(&mut next).take(40).collect();
    let dump = bench.bench().join("dump");
    std::fs::write(
        &dump,
        "printf '%s\\000' \"$@\" >\"$BENCH/argv.$1\"\nshift\ni=0\nwhile [ $i -lt 40 ]; do eval \"printf '%s\\\\000' \\\"\\$E$i\\\" \\\"\\$C$i\\\"\"; i=$((i + 1)); done >\"$BENCH/env\"\n",
    )
    .expect("written");
    for contained in [true, false] {
        let name = if contained { "inside" } else { "bare" };
        let list: Vec<String> = arguments.iter().map(|a| yaml(a)).collect();
        let command = format!("command: [--no_python, /bin/sh, \"{}\", {name}, {}]", dump.display(), list.join(", "));
        let lines = |letter: char, values: &[String]| {
            values.iter().enumerate().map(|(i, v)| format!("{letter}{i}: {}\n", yaml(v))).collect::<String>()
        };
        let (mut env, mut container) = (lines('E', &ours), format!("env:\n  {}", lines('C', &theirs).replace("\nC", "\n  C")));
        if !contained {
            env.push_str(&lines('C', &theirs));
            container.clear();
        }
        let job = Job { contained, env, container, launch: command, ..Job::default() };
        let (laptop, file) = (bench.laptop(name), bench.inventory(name, &job));
        laptop.run(&["up", word(&file)]).await.code(0);
        let read = |name: &str| {
            let text = String::from_utf8(std::fs::read(bench.bench().join(name)).expect("dumped")).expect("UTF-8");
            text.strip_suffix('\0').expect("an end").split('\0').map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(read(&format!("argv.{name}"))[1..], arguments, "{name}");
        let variables: Vec<String> = ours.iter().zip(&theirs).flat_map(|(e, c)| [e.clone(), c.clone()]).collect();
        assert_eq!(read("env"), variables, "{name}");
        bench.nothing_left().await;
    }
    bench.done().await;
}

/// The files beneath a folder that hold the bytes.
fn files_with(dir: &std::path::Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_symlink() {
            continue;
        } else if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if std::fs::read(&path).is_ok_and(|text| text.windows(bytes.len()).any(|w| w == bytes)) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_reaches_the_rank_and_nothing_else() {
    const VALUE: &str = "hf_s3cr3t'\"$HOME\\ 猫";
    let core = b"hf_s3cr3t";
    for contained in [true, false] {
        let bench = Bench::hosts(2).await;
        bench.job("printf %s \"$TOKEN\" | sha256sum");
        let job = Job { contained, top: "secrets: [TOKEN]\n".to_owned(), ..Job::default() };
        let (mut laptop, file) = (bench.laptop("laptop"), bench.inventory("secret", &job));
        laptop.variables.insert("TOKEN".to_owned(), VALUE.to_owned());
        let up = laptop.start(&["up", word(&file), "--progress", "plain", "-vv"]);
        bench.ranks_up(2).await;
        for pid in bench.sandbox.processes() {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            assert!(!line.windows(core.len()).any(|w| w == core), "in an argument vector: {}", String::from_utf8_lossy(&line));
        }
        assert_eq!(files_with(bench.sandbox.dir(), core), Vec::<String>::new(), "on a host's disk");
        let run = laptop.run_dir().file_name().expect("an id").to_string_lossy().into_owned();
        assert!(!std::path::Path::new(&format!("/dev/shm/.orch-{run}")).exists(), "the file in memory is gone once read");
        bench.end(None, 0);
        up.end().await.code(0).silent_about("hf_s3cr3t");
        assert_eq!(files_with(&laptop.home, core), Vec::<String>::new(), "on the laptop");
        for rank in 0..2 {
            let log = String::from_utf8(laptop.log(&format!("rank-{rank}.log"))).expect("text");
            assert!(log.contains(&sha256(VALUE.as_bytes())), "{log}");
        }
        bench.done().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_a_rank_prints_is_masked_on_the_terminal() {
    let bench = Bench::hosts(1).await;
    bench.job("echo \"the token is $TOKEN.\"; exit 3");
    let job = Job { top: "secrets: [TOKEN]\n".to_owned(), ..Job::default() };
    let (mut laptop, file) = (bench.laptop("laptop"), bench.inventory("printed", &job));
    laptop.run(&["up", word(&file)]).await.code(2).says("TOKEN not set in this environment").says("export TOKEN");
    assert!(laptop.runs().is_empty(), "nothing was begun");
    laptop.variables.insert("TOKEN".to_owned(), "open-sesame-42".to_owned());
    laptop.run(&["up", word(&file)]).await.code(1).silent_about("open-sesame-42").says("the token is ");
    assert!(String::from_utf8_lossy(&laptop.log("rank-0.log")).contains("open-sesame-42"), "the file keeps what was written");
    let found = files_with(&laptop.run_dir(), b"open-sesame-42");
    assert!(found.len() == 1 && found[0].ends_with("rank-0.log"), "{found:?}");
    bench.done().await;
}
