//! The commands that only look, and what the command line refuses.

use orchestrate::sandbox::Faults;

use crate::support::{Bench, Job, word};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_folds_equal_answers_and_tells_the_rest() {
    let bench = Bench::hosts(3).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("ask", &Job::default()));
    let file = word(&file);
    let same = laptop.run(&["exec", file, "--", "echo one; echo two"]).await;
    assert_eq!(same.code(0).out, "---- gpu[01-03]\none\ntwo\n");
    let vector = laptop.run(&["exec", file, "--limit", "gpu[02-03]", "--", "printf", "%s|", "a b", "$HOME", "it's"]).await;
    assert_eq!(vector.code(0).out, "---- gpu[02-03]\na b|$HOME|it's|\n");
    let mixed = laptop.run(&["exec", file, "--", "test $(hostname) != gpu02 || { echo bad >&2; exit 9; }; echo fine"]).await;
    assert_eq!(mixed.code(1).out, "---- gpu[01,03]\nfine\n");
    assert!(mixed.err.contains("gpu02: exit 9\nbad"), "{}", mixed.err);
    bench.faults("gpu03", &Faults { refuse_key: true, ..Faults::default() });
    let lost = laptop.run(&["exec", file, "--", "echo here"]).await;
    assert_eq!(lost.code(4).out, "---- gpu[01-02]\nhere\n");
    assert!(lost.err.contains("gpu03: "), "{}", lost.err);
    bench.faults("gpu03", &Faults { noise: Some("Welcome!\n".to_owned()), ..Faults::default() });
    assert_eq!(laptop.run(&["exec", file, "--", "echo here"]).await.code(0).out, "---- gpu[01-03]\nhere\n", "a greeting is no answer");
    let json = laptop.run(&["exec", file, "--progress", "json", "--", "hostname"]).await;
    let lines: Vec<serde_json::Value> = json.code(0).out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(lines.iter().map(|l| l["stdout"].as_str().unwrap_or_default()).collect::<Vec<_>>(), ["gpu01\n", "gpu02\n", "gpu03\n"]);
    let escape = laptop.run(&["exec", file, "--", "printf '\\033[2J\\033]0;title\\007x'"]).await;
    assert!(!escape.code(0).out.contains('\u{1b}') && !escape.out.contains('\u{7}'), "{:?}", escape.out);
    let long = laptop.run(&["exec", file, "--", "head -c 9000000 /dev/zero | tr '\\0' x"]).await;
    let (kept, rest) = long.code(0).out.split_once('…').expect("more than is kept");
    assert!(kept.len() == "---- gpu[01-03]\n".len() + (8 << 20) && rest.starts_with(" 611392 more bytes"), "{}{rest}", kept.len());
    let slow = laptop.run(&["exec", file, "--timeout", "300ms", "--", "sleep 100"]).await;
    slow.code(4).says("3 hosts: no answer to `exec` within 300ms");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_on_one_host_gives_its_output_as_ssh_does() {
    let bench = Bench::hosts(1).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("ask", &Job::default()));
    let file = word(&file);
    bench.faults("gpu01", &Faults { noise: Some("Welcome!\n".to_owned()), ..Faults::default() });
    let bytes = laptop.run(&["exec", file, "--", "printf 'a\\r\\033[1mb\\036end-'; echo complaint >&2; exit 9"]).await;
    assert_eq!(bytes.code(1).out, "a\r\u{1b}[1mb\u{1e}end-");
    assert!(bytes.err.contains("complaint\n") && bytes.err.contains("gpu01: exit 9") && !bytes.out.contains("Welcome"), "{}", bytes.err);
    let long = laptop.run(&["exec", file, "--", "yes | head -c 30000000 | tr y z"]).await;
    assert!(long.code(0).out.len() == 30_000_000 && long.out.bytes().all(|b| matches!(b, b'z' | b'\n')), "{}", long.out.len());
    // What it says is there before it ends.
    let mut early = laptop.start(&["exec", file, "--", "echo now; sleep 600"]);
    early.says("now").await;
    early.signal("INT");
    early.end().await.code(130);
    laptop.run(&["exec", file, "--timeout", "300ms", "--", "sleep 100"]).await.code(4).says("gpu01: no answer to `exec` within 300ms");
    bench.faults("gpu01", &Faults { refuse_key: true, ..Faults::default() });
    laptop.run(&["exec", file, "--", "true"]).await.code(4).says("gpu01: key refused");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_chosen_by_rank_host_and_tail() {
    let bench = Bench::hosts(2).await;
    bench.job("i=1; while [ $i -le 30 ]; do echo \"line $i of rank $RANK\"; i=$((i + 1)); done");
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("read", &Job { nproc: 2, ..Job::default() }));
    let file = word(&file);
    laptop.run(&["logs", file]).await.code(1).says("no run of read is on any host, and this laptop has no logs of one");
    laptop.run(&["up", "-d", file]).await.code(0);
    bench.ranks_up(4).await;
    let tail = laptop.run(&["logs", file, "--rank", "1", "--rank", "2", "--tail", "2"]).await;
    let expected = "[rank 1 gpu01] line 29 of rank 1\n[rank 1 gpu01] line 30 of rank 1\n[rank 2 gpu02] line 29 of rank 2\n[rank 2 gpu02] line 30 of rank 2\n";
    assert_eq!(tail.code(0).out, expected);
    let host = laptop.run(&["logs", file, "--host", "gpu02"]).await;
    assert!(host.code(0).out.lines().all(|l| l.contains("gpu02]")) && host.out.contains("line 1 of rank 3"), "{}", host.out);
    let all = laptop.run(&["logs", file]).await;
    assert_eq!(all.code(0).out.lines().filter(|l| l.contains("line 17 of rank")).count(), 4);
    laptop.run(&["logs", file, "--host", "gpu09"]).await.code(2).says("no such host");
    // Following shows what is there and goes on; Ctrl-C ends the looking and not the run.
    for name in ["laptop", "fresh"] {
        let mut follow = bench.laptop(name).start(&["logs", "-f", file, "--rank", "3"]);
        follow.says("[rank 3 gpu02] line 30 of rank 3").await;
        assert_eq!(follow.said().matches("line 30 of rank 3").count(), 1);
        follow.signal("INT");
        follow.end().await.code(130).silent_about("of rank 2");
    }
    let mut follow = bench.laptop("laptop").start(&["logs", "-f", file, "--rank", "3", "--tail", "1"]);
    follow.says("line 30 of rank 3").await;
    bench.end(None, 0);
    follow.end().await.code(0).says("rank 3 ends with 0").silent_about("line 29");
    laptop.run(&["logs", file, "--rank", "9"]).await.code(2).says("--rank 9: the run has ranks 0-3");
    let list = laptop.run(&["logs", file, "--rank", "r3,0-1", "--tail", "1"]).await;
    let ranks: Vec<&str> = list.code(0).out.lines().map(|line| &line[..7]).collect();
    assert_eq!(ranks, ["[rank 0", "[rank 1", "[rank 3"]);
    for wrong in ["x", "3-1", "-", "0-99999", ""] {
        laptop.run(&["logs", file, "--rank", wrong]).await.code(2);
    }
    laptop.run(&["down", file]).await.code(0);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_past_runs_are_this_laptops_copies() {
    let bench = Bench::hosts(2).await;
    bench.job("echo \"I am rank $RANK\"; [ $RANK != 2 ] || echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.'");
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("gone", &Job { nproc: 2, ..Job::default() }));
    let up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(4).await;
    bench.end(Some(2), 7);
    let ended = up.end().await;
    let advised = ended.code(1).err.lines().find_map(|line| line.trim().strip_prefix("next")).expect("an advice").trim().to_owned();
    assert_eq!(advised, format!("orchestrate logs {} --rank 2", file.display()));
    // What to do next: the command on a line of its own, the other remedies whole.
    let remedy = format!("  do        orchestrate exec {} --limit gpu02 -- nvidia-smi;\n", file.display());
    ended.says(&remedy).says("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n");
    bench.nothing_left().await;
    // As it is advised: nothing is on the hosts any more.
    let words: Vec<&str> = advised.split(' ').skip(1).collect();
    let logs = laptop.run(&words).await;
    logs.code(0).says("these are this laptop's copies of 20");
    assert!(logs.out.contains("[rank 2 gpu02] rank 2 of 4 on gpu02\n[rank 2 gpu02] I am rank 2"), "{}", logs.out);
    assert!(logs.out.lines().all(|line| line.starts_with("[rank 2 ")), "{}", logs.out);
    laptop.run(&["logs", word(&file), "--rank", "4"]).await.code(2).says("--rank 4: the run has ranks 0-3");
    // The next run is another one; the first is there by its id.
    bench.again();
    bench.job("echo \"I am the second rank $RANK\"");
    bench.end(None, 0);
    laptop.run(&["up", word(&file)]).await.code(0);
    let first = laptop.runs()[0].file_name().expect("a name").to_string_lossy().into_owned();
    let second = laptop.runs()[1].file_name().expect("a name").to_string_lossy().into_owned();
    laptop.run(&["logs", word(&file), "--rank", "0"]).await.code(0).says("I am the second rank 0");
    laptop.run(&["logs", word(&file), "--run", &first, "--rank", "0"]).await.code(0).says("] I am rank 0").silent_about("second");
    laptop.run(&["logs", word(&file), "--run", &second[..second.len() - 1], "--host", "gpu02"]).await.code(0).silent_about("gpu01");
    laptop.run(&["logs", word(&file), "--run", "20"]).await.code(2).says("several runs begin with it").says(&first);
    laptop.run(&["logs", word(&file), "--run", "1999"]).await.code(2).says("no such run of gone").says("orchestrate runs");
    // The hosts do not answer: what is here is shown, and the code says it.
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &Faults { refuse_key: true, ..Faults::default() });
    }
    laptop.run(&["logs", word(&file), "--rank", "3"]).await.code(4).says("I am the second rank 3");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ps_tells_what_runs_where() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("look", &Job { nproc: 2, ..Job::default() }));
    let file = word(&file);
    let nothing = laptop.run(&["ps", file]).await;
    assert!(nothing.code(0).out.starts_with("HOST ") && nothing.out.lines().count() == 3, "{}", nothing.out);
    laptop.run(&["up", "-d", file]).await.code(0);
    bench.ranks_up(4).await;
    let run = bench.run_dir("look", 0).file_name().expect("an id").to_string_lossy().into_owned();
    let ps = laptop.run(&["ps", file]).await;
    let rows: Vec<&str> = ps.code(0).out.lines().skip(1).collect();
    let complete = |row: &&str| [run.as_str(), "running", "2 running", "tester@"].iter().all(|word| row.contains(word));
    assert!(rows.len() == 2 && rows.iter().all(complete), "{}", ps.out);
    let json = laptop.run(&["ps", file, "--progress", "json"]).await;
    let row: serde_json::Value = serde_json::from_str(json.code(0).out.lines().next().expect("a line")).expect("JSON");
    assert_eq!((row["host"].as_str(), row["run"].as_str(), row["ranks"].as_str()), (Some("gpu01"), Some(run.as_str()), Some("2 running")));
    bench.faults("gpu02", &Faults { refuse_key: true, ..Faults::default() });
    laptop.run(&["ps", file]).await.code(4).says("unreachable").says("2 running");
    bench.faults("gpu02", &Faults::default());
    laptop.run(&["down", file, "--discard-logs"]).await.code(0);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_says_every_command_and_changes_nothing() {
    let bench = Bench::hosts(2).await;
    let job = Job { nproc: 2, env: "WORDS: \"a 'b' $c\"".to_owned(), top: "secrets: [TOKEN]\n".to_owned(), ..Job::default() };
    let (mut laptop, file) = (bench.laptop("laptop"), bench.inventory("paper", &job));
    let file = word(&file);
    laptop.variables.insert("TOKEN".to_owned(), "open-sesame".to_owned());
    // Without a host: nobody is asked.
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &Faults { refuse_key: true, ..Faults::default() });
    }
    let plan = laptop.run(&["plan", file, "-v"]).await;
    for text in
        ["preflight", "pull", "container", "prove", "master", "workers", "docker", "demo/train:1", "torchrun", "WORDS='a '\\''b'\\'' $c'"]
    {
        plan.code(0).says(text);
    }
    plan.silent_about("open-sesame").says("checks: asked before anything changes").says("kernel_log");
    let short = laptop.run(&["plan", file]).await;
    short.code(0).says("  gpu[01-02]: look at the host\n").says("# (assets/check/host.sh)").silent_about("kernel_log");
    let ssh = plan.out.split("\npreflight").next().unwrap_or_default();
    assert!(ssh.starts_with("ssh\n  gpu01\n"), "{ssh}");
    let told = |name: &str, origin: &str| ssh.lines().any(|l| l.trim_start().starts_with(name) && l.ends_with(&format!("  {origin}")));
    assert!(told("HostName", "inventory") && told("ServerAliveInterval", "default"), "{ssh}");
    assert!(ssh.lines().any(|l| l.contains("StrictHostKeyChecking  yes") && l.ends_with("/ssh_defaults:8")), "{ssh}");
    let never = ["--set", "container.pull=never"];
    let plan = laptop.run(&[&["plan", file, "-v"][..], &never].concat()).await;
    plan.code(0).says("look for the image").silent_about("docker pull").silent_about("D pull");
    let render = laptop.run(&[&["render", file, "--set", "launch.master_port=29500"][..], &never].concat()).await;
    render.silent_about("docker pull");
    laptop.run(&["plan", file, "--facts"]).await.code(4);
    for host in ["gpu01", "gpu02"] {
        bench.faults(host, &Faults::default());
    }
    laptop.run(&["plan", file, "--facts"]).await.code(0).silent_about("<from gpu01").silent_about("open-sesame");
    let json = laptop.run(&["plan", file, "--facts", "--json"]).await;
    let value: serde_json::Value = serde_json::from_str(&json.code(0).out).expect("JSON");
    assert!(value.is_object() && json.out.contains("torchrun"), "{}", json.out);
    let asked = value["checks"].as_array().expect("checks").iter().find(|asked| asked["title"] == "compare the clocks");
    assert!(asked.is_some_and(|asked| asked["hosts"] == serde_json::json!(["gpu01", "gpu02"])), "{}", json.out);
    assert_eq!(value["ssh"][1]["hops"][0]["settings"][0]["name"], "HostName", "{}", json.out);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_runs_are_listed_and_pruned() {
    let bench = Bench::hosts(1).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("past", &Job::default()));
    laptop.run(&["runs"]).await.code(0).says("no runs in");
    bench.end(None, 0);
    laptop.run(&["up", word(&file)]).await.code(0);
    bench.end(None, 4);
    laptop.run(&["up", word(&file)]).await.code(1);
    let runs = laptop.run(&["runs"]).await;
    let rows: Vec<&str> = runs.code(0).out.lines().collect();
    assert!(rows.len() == 3 && rows[1].ends_with("  OK") && rows[2].ends_with("  FAILED"), "{}", runs.out);
    laptop.run(&["runs", "prune", "--keep", "1"]).await.code(0).says("1 run removed");
    let runs = laptop.run(&["runs"]).await;
    assert!(runs.out.lines().count() == 2 && runs.out.contains("FAILED"), "{}", runs.out);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_command_or_inventory_is_a_usage_error() {
    let bench = Bench::hosts(1).await;
    let laptop = bench.laptop("laptop");
    laptop.run(&["up"]).await.code(2).says("inventory.yaml: cannot be read").says("configs/");
    laptop.run(&["up", "nowhere.yaml"]).await.code(2).says("nowhere.yaml: cannot be read");
    laptop.run(&["upp"]).await.code(2).says("up");
    let bad = bench.write("bad", "name: Bad Name\nhosts: [a, a]\nlaunch: { with: torchrun, nproc_per_nod: 4, command: x.py }\n");
    for command in ["up", "down", "plan"] {
        let ended = laptop.run(&[command, word(&bad)]).await;
        ended.code(2).says("bad.yaml:1:7: name").says("bad.yaml:2:");
    }
    laptop.run(&["up", word(&bad)]).await.says("nproc_per_node").says("3 problems");
    // The environment and the folder name the inventory too.
    let good = bench.inventory("good", &Job::default());
    let mut other = bench.laptop("other");
    other.variables.insert("ORCHESTRATE_INVENTORY".to_owned(), word(&good).to_owned());
    other.run(&["ps"]).await.code(0).says("gpu01");
    std::fs::copy(&good, laptop.home.join("inventory.yaml")).expect("copied");
    laptop.run(&["ps"]).await.code(0).says("gpu01");
    laptop.run(&["ps", word(&good), "--limit", "gpu77"]).await.code(2).says("gpu77");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_can_be_planned() {
    let bench = Bench::hosts(1).await;
    let laptop = bench.laptop("laptop");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("configs") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "yaml") {
            laptop.run(&["plan", word(&path)]).await.code(0).says("workers");
            laptop.run(&["plan", word(&path), "--json"]).await.code(0);
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen}");
    bench.done().await;
}
