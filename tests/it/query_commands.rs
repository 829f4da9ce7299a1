//! Read-only commands, and usage errors.

use orchestrate::sandbox::Faults;

use crate::support::{JobSpec, SandboxFixture, path_str, wait_until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_groups_equal_output_and_lists_the_rest() {
    let fixture = SandboxFixture::with_hosts(3).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("ask", &JobSpec::default()));
    let file = path_str(&file);
    let same = laptop.run(&["exec", file, "--", "echo one; echo two"]).await;
    assert_eq!(same.assert_exit_code(0).stdout, "---- gpu[01-03]\none\ntwo\n");
    let one = laptop.run(&["exec", file, "--host", "gpu02", "--", "echo $((1 + 1))"]).await;
    assert_eq!(one.assert_exit_code(0).stdout, "2\n", "`--host` is `--limit`, as for `logs`");
    let input = laptop.home.join("input");
    std::fs::write(&input, "a line\n").expect("the input");
    let unsent = laptop.run_with_input(&["exec", file, "--", "cat"], &input).await;
    unsent.assert_exit_code(0).assert_contains("standard input was not sent: only one host takes it");
    let vector = laptop.run(&["exec", file, "--limit", "gpu[02-03]", "--", "printf", "%s|", "a b", "$HOME", "it's"]).await;
    assert_eq!(vector.assert_exit_code(0).stdout, "---- gpu[02-03]\na b|$HOME|it's|\n");
    let mixed = laptop.run(&["exec", file, "--", "test $(hostname) != gpu02 || { echo bad >&2; exit 9; }; echo fine"]).await;
    assert_eq!(mixed.assert_exit_code(1).stdout, "---- gpu[01,03]\nfine\n");
    assert!(mixed.stderr.contains("gpu02: exit 9\nbad"), "{}", mixed.stderr);
    fixture.set_faults("gpu03", &Faults { refuse_key: true, ..Faults::default() });
    let lost = laptop.run(&["exec", file, "--", "echo here"]).await;
    assert_eq!(lost.assert_exit_code(4).stdout, "---- gpu[01-02]\nhere\n");
    assert!(lost.stderr.contains("gpu03: "), "{}", lost.stderr);
    fixture.set_faults("gpu03", &Faults { noise: Some("Welcome!\n".to_owned()), ..Faults::default() });
    assert_eq!(
        laptop.run(&["exec", file, "--", "echo here"]).await.assert_exit_code(0).stdout,
        "---- gpu[01-03]\nhere\n",
        "a greeting is no answer"
    );
    let json = laptop.run(&["exec", file, "--json", "--", "hostname"]).await;
    let lines: Vec<serde_json::Value> = json.assert_exit_code(0).stdout.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(lines.iter().map(|l| l["stdout"].as_str().unwrap_or_default()).collect::<Vec<_>>(), ["gpu01\n", "gpu02\n", "gpu03\n"]);
    assert!(lines.iter().all(|l| l["format"] == "exec 1" && l["code"] == 0), "{}", json.stdout);
    let escape = laptop.run(&["exec", file, "--", "printf '\\033[2J\\033]0;title\\007x'"]).await;
    assert!(!escape.assert_exit_code(0).stdout.contains('\u{1b}') && !escape.stdout.contains('\u{7}'), "{:?}", escape.stdout);
    let long = laptop.run(&["exec", file, "--", "head -c 9000000 /dev/zero | tr '\\0' x"]).await;
    let (kept, rest) = long.assert_exit_code(0).stdout.split_once('…').expect("more than is kept");
    assert!(kept.len() == "---- gpu[01-03]\n".len() + (8 << 20) && rest.starts_with(" 611392 more bytes"), "{}{rest}", kept.len());
    let slow = laptop.run(&["exec", file, "--timeout", "300ms", "--", "sleep 100"]).await;
    slow.assert_exit_code(4).assert_contains("3 hosts: no answer to `exec` within 300ms");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_on_one_host_passes_output_through() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("ask", &JobSpec::default()));
    let file = path_str(&file);
    fixture.set_faults("gpu01", &Faults { noise: Some("Welcome!\n".to_owned()), ..Faults::default() });
    let bytes = laptop.run(&["exec", file, "--", "printf 'a\\r\\033[1mb\\036end-'; echo complaint >&2; exit 9"]).await;
    assert_eq!(bytes.assert_exit_code(9).stdout, "a\r\u{1b}[1mb\u{1e}end-");
    assert!(
        bytes.stderr.contains("complaint\n") && bytes.stderr.contains("gpu01: exit 9") && !bytes.stdout.contains("Welcome"),
        "{}",
        bytes.stderr
    );
    let long = laptop.run(&["exec", file, "--", "yes | head -c 30000000 | tr y z"]).await;
    assert!(
        long.assert_exit_code(0).stdout.len() == 30_000_000 && long.stdout.bytes().all(|b| matches!(b, b'z' | b'\n')),
        "{}",
        long.stdout.len()
    );
    // A file on standard input reaches the command byte for byte.
    fixture.set_faults("gpu01", &Faults::default());
    let input = fixture.root().join("input");
    std::fs::write(&input, b"a\0\xffb\nlast").expect("written");
    let piped = laptop.run_with_input(&["exec", file, "--", "od -An -tx1; exit 3"], &input).await;
    assert_eq!(piped.assert_exit_code(3).stdout.split_whitespace().collect::<Vec<_>>().join(" "), "61 00 ff 62 0a 6c 61 73 74");
    let unread = laptop.run_with_input(&["exec", file, "--", "echo unread"], &input).await;
    assert_eq!(unread.assert_exit_code(0).stdout, "unread\n");
    // Output is streamed; each signal ends the command here and on the host.
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let mut exec = laptop.start(&["exec", file, "--", "echo now; sleep 600"]);
        exec.wait_for_output("now").await;
        exec.send_signal(signal);
        exec.wait_for_exit().await.assert_exit_code(code);
    }
    laptop
        .run(&["exec", file, "--timeout", "300ms", "--", "sleep 100"])
        .await
        .assert_exit_code(255)
        .assert_contains("gpu01: no answer to `exec` within 300ms");
    fixture.set_faults("gpu01", &Faults { refuse_key: true, ..Faults::default() });
    laptop.run(&["exec", file, "--", "true"]).await.assert_exit_code(255).assert_contains("gpu01: key refused");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_filter_by_rank_host_and_tail() {
    let fixture = SandboxFixture::with_hosts(2).await;
    fixture.set_payload_setup("i=1; while [ $i -le 30 ]; do echo \"line $i of rank $RANK\"; i=$((i + 1)); done");
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("read", &JobSpec { nproc_per_node: 2, ..JobSpec::default() }));
    let file = path_str(&file);
    laptop
        .run(&["logs", file])
        .await
        .assert_exit_code(1)
        .assert_contains("no run of read is on any host, and this laptop has no logs of it");
    laptop.run(&["up", file, "--set", "container.mounts=[/nowhere:/x]"]).await.assert_exit_code(3);
    let refused = laptop.run(&["logs", file, "--rank", "1"]).await;
    refused.assert_exit_code(1).assert_contains(": it started no rank").assert_contains("`orchestrate replay 20");
    laptop.run(&["up", "-d", file]).await.assert_exit_code(0);
    for rank in 0..4 {
        let log = fixture.run_file("read", rank / 2, &format!("rank-{rank}.0.log"));
        let last = format!("line 30 of rank {rank}\n");
        wait_until("its log", async || std::fs::read_to_string(&log).is_ok_and(|text| text.contains(&last)).then_some(())).await;
    }
    let tail = laptop.run(&["logs", file, "--rank", "1", "--rank", "2", "--tail", "2"]).await;
    let expected = "[rank 1 gpu01] line 29 of rank 1\n[rank 1 gpu01] line 30 of rank 1\n[rank 2 gpu02] line 29 of rank 2\n[rank 2 gpu02] line 30 of rank 2\n";
    assert_eq!(tail.assert_exit_code(0).stdout, expected);
    let host = laptop.run(&["logs", file, "--host", "gpu02"]).await;
    assert!(
        host.assert_exit_code(0).stdout.lines().all(|l| l.contains("gpu02]")) && host.stdout.contains("line 1 of rank 3"),
        "{}",
        host.stdout
    );
    let all = laptop.run(&["logs", file]).await;
    assert_eq!(all.assert_exit_code(0).stdout.lines().filter(|l| l.contains("line 17 of rank")).count(), 4);
    laptop.run(&["logs", file, "--host", "gpu09"]).await.assert_exit_code(2).assert_contains("the hosts are gpu[01-02]");
    let of_host = laptop.run(&["logs", file, "--rank", "host:gpu02,0", "--tail", "1"]).await;
    let ranks: Vec<&str> = of_host.assert_exit_code(0).stdout.lines().map(|line| &line[..7]).collect();
    assert_eq!(ranks, ["[rank 0", "[rank 2", "[rank 3"]);
    laptop.run(&["logs", file, "--rank", "host:gpu09"]).await.assert_exit_code(2).assert_contains("no host is named `gpu09`");
    // `logs -f` shows the log so far and continues; Ctrl-C ends the command, not the run.
    for name in ["laptop", "fresh"] {
        let mut follow = fixture.new_laptop(name).start(&["logs", "-f", file, "--rank", "3"]);
        follow.wait_for_output("[rank 3 gpu02] line 30 of rank 3").await;
        assert_eq!(follow.output_so_far().matches("line 30 of rank 3").count(), 1);
        follow.send_signal("INT");
        follow.wait_for_exit().await.assert_exit_code(130).assert_not_contains("of rank 2");
    }
    let mut follow = fixture.new_laptop("laptop").start(&["logs", "-f", file, "--rank", "3", "--tail", "1"]);
    follow.wait_for_output("line 30 of rank 3").await;
    fixture.end_ranks(None, 0);
    follow.wait_for_exit().await.assert_exit_code(0).assert_contains("rank 3 ends with 0").assert_not_contains("line 29");
    laptop.run(&["logs", file, "--rank", "9"]).await.assert_exit_code(2).assert_contains("has ranks 0-3");
    let list = laptop.run(&["logs", file, "--rank", "r3,0-1", "--tail", "1"]).await;
    let ranks: Vec<&str> = list.assert_exit_code(0).stdout.lines().map(|line| &line[..7]).collect();
    assert_eq!(ranks, ["[rank 0", "[rank 1", "[rank 3"]);
    for wrong in ["x", "3-1", "-", "0-99999", ""] {
        laptop.run(&["logs", file, "--rank", wrong]).await.assert_exit_code(2);
    }
    laptop.run(&["down", file]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_past_runs_come_from_local_copies() {
    let fixture = SandboxFixture::with_hosts(2).await;
    fixture.set_payload_setup("echo \"I am rank $RANK\"; [ $RANK != 2 ] || echo 'torch.OutOfMemoryError: CUDA out of memory.'");
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("gone", &JobSpec { nproc_per_node: 2, ..JobSpec::default() });
    let up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(4).await;
    fixture.end_ranks(Some(2), 7);
    let ended = up.wait_for_exit().await;
    let advised =
        ended.assert_exit_code(1).stderr.lines().find_map(|line| line.trim().strip_prefix("next")).expect("an advice").trim().to_owned();
    assert_eq!(advised, format!("orchestrate logs {} --rank 2", file.display()));
    // The next step: the command on a line of its own, the other remedies complete.
    let remedy = format!("  do        orchestrate exec {} --limit gpu02 -- nvidia-smi\n", file.display());
    ended.assert_contains(&remedy).assert_contains("add under `env`: PYTORCH_ALLOC_CONF: expandable_segments:True (");
    fixture.assert_no_leftovers().await;
    // After the advised `down`, nothing is on the hosts any more.
    let words: Vec<&str> = advised.split(' ').skip(1).collect();
    let logs = laptop.run(&words).await;
    logs.assert_exit_code(0).assert_contains("reading this laptop's copy of 20");
    assert!(logs.stdout.contains("[rank 2 gpu02] rank 2 of 4 on gpu02\n[rank 2 gpu02] I am rank 2"), "{}", logs.stdout);
    assert!(logs.stdout.lines().all(|line| line.starts_with("[rank 2 ")), "{}", logs.stdout);
    laptop.run(&["logs", path_str(&file), "--rank", "4"]).await.assert_exit_code(2).assert_contains("has ranks 0-3");
    // A second run follows; the first one is available by its id.
    fixture.clear_control_files();
    fixture.set_payload_setup("echo \"I am the second rank $RANK\"");
    fixture.end_ranks(None, 0);
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0);
    let [first, second] = [0, 1].map(|n: usize| laptop.run_dirs()[n].file_name().expect("a name").to_string_lossy().into_owned());
    laptop.run(&["logs", path_str(&file), "--rank", "0"]).await.assert_exit_code(0).assert_contains("I am the second rank 0");
    laptop
        .run(&["logs", path_str(&file), "--run", &first, "--rank", "0"])
        .await
        .assert_exit_code(0)
        .assert_contains("] I am rank 0")
        .assert_not_contains("second");
    laptop
        .run(&["logs", path_str(&file), "--run", &second[..second.len() - 1], "--host", "gpu02"])
        .await
        .assert_exit_code(0)
        .assert_not_contains("gpu01");
    laptop
        .run(&["logs", path_str(&file), "--run", "20"])
        .await
        .assert_exit_code(2)
        .assert_contains("several runs begin with it")
        .assert_contains(&first);
    laptop
        .run(&["logs", path_str(&file), "--run", "1999"])
        .await
        .assert_exit_code(2)
        .assert_contains("no such run of gone")
        .assert_contains("orchestrate runs");
    // If the hosts do not answer, the local copies are shown and the exit code reports it.
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &Faults { refuse_key: true, ..Faults::default() });
    }
    laptop.run(&["logs", path_str(&file), "--rank", "3"]).await.assert_exit_code(4).assert_contains("I am the second rank 3");
    fixture.assert_clean_and_stop().await;
}

/// The logs of an earlier run are not those of a later one that started no rank.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_a_refused_run_are_not_those_of_an_earlier_one() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("refused", &JobSpec::default()));
    fixture.end_ranks(None, 0);
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0);
    laptop.run(&["up", path_str(&file), "--set", "container.mounts=[/nowhere:/x]"]).await.assert_exit_code(3);
    let refused = laptop.run(&["logs", path_str(&file), "--rank", "0"]).await;
    assert_eq!(refused.assert_exit_code(1).assert_contains("it started no rank").stdout, "");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ps_lists_runs_per_host() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("look", &JobSpec { nproc_per_node: 2, ..JobSpec::default() }));
    let file = path_str(&file);
    let nothing = laptop.run(&["ps", file]).await;
    assert!(nothing.assert_exit_code(0).stdout.starts_with("HOST ") && nothing.stdout.lines().count() == 3, "{}", nothing.stdout);
    fixture.set_payload_setup("printf 'step 6/9\\nstep 7/9\\n\\033[2Jrank %s saves\\n' $RANK\n");
    laptop.run(&["up", "-d", file]).await.assert_exit_code(0);
    fixture.wait_for_ranks(4).await;
    wait_until("the last line of each rank", async || {
        let ps = laptop.run(&["ps", file]).await;
        (0..4).all(|rank| ps.stdout.contains(&format!("rank {rank} saves"))).then_some(())
    })
    .await;
    let run = fixture.run_dir("look", 0).file_name().expect("an id").to_string_lossy().into_owned();
    let ps = laptop.run(&["ps", file]).await;
    let rows: Vec<&str> = ps.assert_exit_code(0).stdout.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    let complete = |row: &&str| [run.as_str(), "running", "2 running", "tester@"].iter().all(|word| row.contains(word));
    assert!(rows.len() == 2 && rows.iter().all(complete), "{}", ps.stdout);
    assert!(ps.stdout.starts_with("HOST   RUN ") && ps.stdout.contains(" AGE ") && ps.stdout.contains(" s "), "{}", ps.stdout);
    // Each rank with its step and the last line of its log, without what would act on the terminal.
    let ranks: Vec<Vec<&str>> = ps.stdout.lines().skip(4).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(ranks[0], ["RANK", "HOST", "STATE", "STEP", "LAST", "LINE"]);
    assert_eq!(
        ranks[1..].iter().map(|row| row[..4].join(" ")).collect::<Vec<_>>(),
        ["0 gpu01 running 7/9", "1 gpu01 running 7/9", "2 gpu02 running 7/9", "3 gpu02 running 7/9"]
    );
    assert!(ps.stdout.contains("7/9   rank 3 saves") && !ps.stdout.contains('\u{1b}'), "{}", ps.stdout);
    // From an inventory of another name, too.
    let other = fixture.write_inventory("other", &JobSpec { nproc_per_node: 2, ..JobSpec::default() });
    let all = laptop.run(&["ps", "--all", path_str(&other)]).await;
    let rows: Vec<&str> = all.assert_exit_code(0).stdout.lines().skip(1).collect();
    let complete = |row: &&str| ["look", run.as_str(), " running", "tester@"].iter().all(|word| row.contains(word));
    assert!(rows.len() == 2 && rows.iter().all(complete) && all.stderr.is_empty(), "{}{}", all.stdout, all.stderr);
    let json = laptop.run(&["ps", file, "--json"]).await;
    let row: serde_json::Value = serde_json::from_str(json.assert_exit_code(0).stdout.lines().next().expect("a line")).expect("JSON");
    assert_eq!((row["host"].as_str(), row["run"].as_str(), row["ranks"].as_str()), (Some("gpu01"), Some(run.as_str()), Some("2 running")));
    assert_eq!((row["format"].as_str(), row["ranks_running"].as_u64(), row["error"].is_null()), (Some("ps 1"), Some(2), true));
    assert!(row["age_seconds"].as_i64().is_some_and(|age| (0..600).contains(&age)), "{row}");
    fixture.set_faults("gpu02", &Faults { refuse_key: true, ..Faults::default() });
    laptop.run(&["ps", file]).await.assert_exit_code(4).assert_contains("unreachable").assert_contains("2 running");
    for args in [&["ps", file, "--json"][..], &["ps", "--all", file, "--json"]] {
        let json = laptop.run(args).await;
        let lines = json.assert_exit_code(4).stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let errors: Vec<(String, bool)> =
            lines.map(|line: serde_json::Value| (line["host"].to_string(), line["error"].is_string())).collect();
        assert_eq!(errors, [("\"gpu01\"".to_owned(), false), ("\"gpu02\"".to_owned(), true)], "{}", json.stdout);
        assert!(json.stderr.contains("gpu02"), "with the remedy: {}", json.stderr);
    }
    fixture.set_faults("gpu02", &Faults::default());
    laptop.run(&["down", file, "--discard-logs"]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_prints_every_command_and_changes_nothing() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let job = JobSpec {
        nproc_per_node: 2,
        env: "WORDS: \"a 'b' $c\"".to_owned(),
        top_level: "secrets: [TOKEN]\n".to_owned(),
        ..JobSpec::default()
    };
    let (mut laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("paper", &job));
    let file = path_str(&file);
    laptop.env_vars.insert("TOKEN".to_owned(), "open-sesame".to_owned());
    // Without facts no host is contacted.
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &Faults { refuse_key: true, ..Faults::default() });
    }
    let plan = laptop.run(&["plan", file, "-vv"]).await;
    let phases = ["preflight", "pull", "container", "environment", "master", "workers"];
    for text in phases.into_iter().chain(["docker", "demo/train:1", "torchrun", "WORDS='a '\\''b'\\'' $c'"]) {
        plan.assert_exit_code(0).assert_contains(text);
    }
    plan.assert_not_contains("open-sesame").assert_contains("checks: run before anything changes").assert_contains("kernel_log");
    let scripts = laptop.run(&["plan", file, "-v"]).await;
    scripts
        .assert_exit_code(0)
        .assert_contains("  gpu[01-02]: probe the host\n")
        .assert_contains("# (assets/check/host.sh)")
        .assert_not_contains("kernel_log");
    let ssh = plan.stdout.split("\npreflight").next().unwrap_or_default();
    assert!(ssh.starts_with("ssh\n  gpu01\n"), "{ssh}");
    // Long paths wrap.
    let words: Vec<&str> = ssh.split_whitespace().collect();
    for (name, origin) in [("HostName", "inventory"), ("ServerAliveInterval", "default"), ("StrictHostKeyChecking", "/ssh_defaults:8")] {
        assert!(words.windows(3).any(|w| w[0] == name && w[2].ends_with(origin)), "{name}: {ssh}");
    }
    let never = ["--set", "container.pull=never"];
    let plan = laptop.run(&[&["plan", file, "-v"][..], &never].concat()).await;
    plan.assert_exit_code(0).assert_contains("check the image").assert_not_contains("docker pull").assert_not_contains("D pull");
    let render = laptop.run(&[&["render", file, "--set", "launch.master_port=29500"][..], &never].concat()).await;
    render.assert_not_contains("docker pull");
    laptop.run(&["plan", file, "--facts"]).await.assert_exit_code(4);
    for host in ["gpu01", "gpu02"] {
        fixture.set_faults(host, &Faults::default());
    }
    laptop.run(&["plan", file, "--facts"]).await.assert_exit_code(0).assert_not_contains("<from gpu01").assert_not_contains("open-sesame");
    let json = laptop.run(&["plan", file, "--facts", "--json"]).await;
    let value: serde_json::Value = serde_json::from_str(&json.assert_exit_code(0).stdout).expect("JSON");
    assert!(value.is_object() && json.stdout.contains("torchrun"), "{}", json.stdout);
    let query = value["checks"].as_array().expect("checks").iter().find(|query| query["title"] == "compare the clocks");
    assert!(query.is_some_and(|query| query["hosts"] == serde_json::json!(["gpu01", "gpu02"])), "{}", json.stdout);
    assert_eq!(value["ssh"][1]["hops"][0]["settings"][0]["name"], "HostName", "{}", json.stdout);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_fits_on_one_screen() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let env = "WORDS: \"a 'b' $c\"".to_owned();
    let job = JobSpec { nproc_per_node: 2, env, top_level: "secrets: [TOKEN]\n".to_owned(), ..JobSpec::default() };
    let (mut laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("paper", &job));
    let file = path_str(&file);
    laptop.env_vars.insert("TOKEN".to_owned(), "open-sesame".to_owned());
    let screen = laptop.run(&["plan", file]).await;
    screen.assert_exit_code(0).assert_contains("docker run -d --name orch-paper-<host>").assert_contains("--node_rank=<0-1>");
    screen.assert_contains("--facts asks them").assert_not_contains("open-sesame");
    assert!(screen.stdout.lines().count() <= 40, "{}", screen.stdout);
    let rank = laptop.run(&["plan", file, "--rank", "r3"]).await;
    rank.assert_exit_code(0).assert_contains("# rank 3 on gpu02").assert_contains("WORDS='a '\\''b'\\'' $c'").assert_contains("TOKEN=***");
    rank.assert_contains("\nLOCAL_RANK=1\n").assert_not_contains("open-sesame");
    laptop.run(&["plan", file, "--rank", "4"]).await.assert_exit_code(2).assert_contains("this run has ranks 0-3");
    let query = laptop.run(&["plan", file, "--facts"]).await;
    query.assert_exit_code(0).assert_contains("no run exists: `up` launches one").assert_not_contains("<from ");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_runs_are_listed_and_pruned() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("past", &JobSpec::default()));
    laptop.run(&["runs"]).await.assert_exit_code(0).assert_contains("no runs in");
    fixture.end_ranks(None, 0);
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0);
    fixture.end_ranks(None, 4);
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(1);
    let runs = laptop.run(&["runs"]).await;
    let rows: Vec<&str> = runs.assert_exit_code(0).stdout.lines().collect();
    assert!(rows.len() == 3 && rows[1].ends_with("  OK") && rows[2].ends_with("  FAILED"), "{}", runs.stdout);
    let json = laptop.run(&["runs", "--json"]).await;
    let last: serde_json::Value = serde_json::from_str(json.assert_exit_code(0).stdout.lines().last().expect("a run")).expect("JSON");
    assert_eq!((last["format"].as_str(), last["name"].as_str(), last["ranks"].as_u64()), (Some("runs 1"), Some("past"), Some(1)));
    laptop.run(&["runs", "prune", "--keep", "1"]).await.assert_exit_code(0).assert_contains("1 run removed");
    let runs = laptop.run(&["runs"]).await;
    assert!(runs.stdout.lines().count() == 2 && runs.stdout.contains("FAILED"), "{}", runs.stdout);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_command_or_inventory_is_a_usage_error() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let laptop = fixture.new_laptop("laptop");
    laptop.run(&["up"]).await.assert_exit_code(2).assert_contains("inventory.yaml: no such file").assert_contains("orchestrate init");
    laptop.run(&["up", "nowhere.yaml"]).await.assert_exit_code(2).assert_contains("nowhere.yaml: no such file");
    laptop.run(&["upp"]).await.assert_exit_code(2).assert_contains("up");
    let bad = fixture.write_yaml("bad", "name: Bad Name\nhosts: [a, a]\nlaunch: { with: torchrun, nproc_per_nod: 4, command: x.py }\n");
    for command in ["up", "down", "plan"] {
        let ended = laptop.run(&[command, path_str(&bad)]).await;
        ended.assert_exit_code(2).assert_contains("bad.yaml:1:7: name").assert_contains("bad.yaml:2:");
    }
    laptop.run(&["up", path_str(&bad)]).await.assert_contains("nproc_per_node").assert_contains("3 problems");
    // The environment variable and the working directory provide the inventory too.
    let good = fixture.write_inventory("good", &JobSpec::default());
    let mut other = fixture.new_laptop("other");
    other.env_vars.insert("ORCHESTRATE_INVENTORY".to_owned(), path_str(&good).to_owned());
    other.run(&["ps"]).await.assert_exit_code(0).assert_contains("gpu01");
    std::fs::copy(&good, laptop.home.join("inventory.yaml")).expect("copied");
    laptop.run(&["ps"]).await.assert_exit_code(0).assert_contains("gpu01");
    laptop.run(&["ps", path_str(&good), "--limit", "gpu77"]).await.assert_exit_code(2).assert_contains("gpu77");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn example_configs_can_be_planned() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let laptop = fixture.new_laptop("laptop");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("configs") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "yaml") {
            seen += 1;
            if path.ends_with("slurm.yaml") {
                laptop.run(&["plan", path_str(&path)]).await.assert_exit_code(2).assert_contains("orchestrate slurm --help");
                laptop.run(&["slurm", "render", path_str(&path)]).await.assert_exit_code(0).assert_contains("#SBATCH --nodes=");
                continue;
            }
            laptop.run(&["plan", path_str(&path)]).await.assert_exit_code(0).assert_contains("workers");
            laptop.run(&["plan", path_str(&path), "--json"]).await.assert_exit_code(0);
        }
    }
    assert!(seen >= 4, "{seen}");
    fixture.assert_clean_and_stop().await;
}
