//! Launchers other than torchrun, as far as real shells can show them: one process per GPU, setup commands, `master_port: auto`, restarts.

use crate::support::{JobSpec, SandboxFixture, path_str};

/// What each rank prints about itself, in rank order.
fn rank_log_texts(laptop: &crate::support::Laptop, ranks: usize) -> Vec<String> {
    (0..ranks).map(|rank| String::from_utf8_lossy(&laptop.read_log(&format!("rank-{rank}.log"))).trim_end().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_process_knows_its_rank_and_gpu() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let shell = "with: processes\ngpu_visibility: own\ngate: started\nsetup: |\n  set -- none\n  export PREPARED=\"$LOCAL_RANK $#\"\nshell: |\n  \
                 echo \"$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE node $NODE_RANK gpu $CUDA_VISIBLE_DEVICES jax $JAX_PROCESS_ID \
                 ${JAX_COORDINATOR_ADDRESS##*:} $JAX_LOCAL_DEVICE_IDS prepared $PREPARED args $#\"\n  \
                 test \"$JAX_COORDINATOR_ADDRESS\" = \"$MASTER_ADDR:$MASTER_PORT\" && cat \"$ORCH_HOSTFILE\"\n";
    for (name, contained) in [("processes", true), ("bare", false)] {
        let job = JobSpec { nproc_per_node: 2, launch: shell.to_owned(), in_container: contained, ..JobSpec::default() };
        let (laptop, file) = (fixture.new_laptop(name), fixture.write_inventory(name, &job));
        laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0).assert_recap("OK").assert_contains("4 ok  0 failed of 4");
        let expected: Vec<String> = (0..4)
            .map(|rank| {
                let (node, local) = (rank / 2, rank % 2);
                let port = fixture.master_port;
                format!(
                    "{rank}/4 {local}/2 node {node} gpu {local} jax {rank} {port} 0 prepared {local} 1 args 0\ngpu01 slots=2\ngpu02 slots=2"
                )
            })
            .collect();
        assert_eq!(rank_log_texts(&laptop, 4), expected);
        fixture.assert_no_leftovers().await;
    }
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_process_stops_siblings_and_is_named() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let launch = format!("with: processes\ngate: started\ncommand: [/bin/sh, \"{}/payload\"]\n", fixture.control_dir().display());
    let job = JobSpec { nproc_per_node: 2, launch, ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("fails", &job));
    let up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(4).await;
    fixture.end_ranks(Some(3), 7);
    up.wait_for_exit().await.assert_exit_code(1).assert_contains("rank 3");
    for rank in 0..3 {
        assert!(fixture.control_dir().join(format!("term.{rank}")).exists(), "rank {rank} received TERM");
    }
    fixture.assert_no_leftovers().await;
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn auto_port_is_chosen_on_the_master() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let job = JobSpec { launch: "shell: echo \"port $MASTER_PORT $ORCH_MASTER_PORT\"\nwith: script\n".to_owned(), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("auto", &job));
    laptop.run(&["up", path_str(&file), "--set", "launch.master_port=auto"]).await.assert_exit_code(0);
    let output = rank_log_texts(&laptop, 2);
    let port: u16 = output[0].split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or_else(|| panic!("{output:?}"));
    assert!((20_000..30_000).contains(&port), "{port}");
    assert_eq!(output, vec![format!("port {port} {port}"); 2]);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_worker_does_not_fail_the_run() {
    let fixture = SandboxFixture::with_hosts(1).await;
    fixture.set_payload_setup("if [ \"$RANK.$TORCHELASTIC_RESTART_COUNT\" = 1.0 ]; then echo 'dies once'; exit 9; fi");
    let command = format!("command: [--no_python, /bin/sh, \"{}/payload\"]", fixture.control_dir().display());
    let job = JobSpec { nproc_per_node: 2, launch: format!("rendezvous: c10d\nmax_restarts: 1\n{command}\n"), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("again", &job));
    let up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(2).await;
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK");
    fixture.assert_no_leftovers().await;
    fixture.assert_clean_and_stop().await;
}

/// A config of this project as an absolute path.
fn example_config_path(name: &str) -> String {
    format!("{}/configs/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constraint_satisfying_sizes_are_suggested() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let laptop = fixture.new_laptop("laptop");
    let file = example_config_path("wan22.yaml");
    let refused = laptop.run(&["plan", &file, "--set", "launch.nproc_per_node=8"]).await;
    refused.assert_exit_code(2).assert_contains("launch.nproc_per_node 5 (or 4, 2, 1) per host satisfies all constraints on 2 hosts");
    let suggested = laptop.run(&["plan", &file, "--suggest", "--set", "launch.nproc_per_node=8"]).await;
    suggested.assert_exit_code(0).assert_contains("--set launch.nproc_per_node=5");
    assert_eq!(suggested.stdout.lines().nth(1).map(|l| l.split_whitespace().collect::<Vec<_>>()), Some(vec!["2", "5", "10", "6"]));
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lint_warns_or_denies() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let laptop = fixture.new_laptop("laptop");
    let job = JobSpec { launch: "with: script\nshell: |\n  nohup ./train.sh > train.log &\n".to_owned(), ..JobSpec::default() };
    let file = fixture.write_inventory("linted", &job);
    laptop
        .run(&["plan", path_str(&file)])
        .await
        .assert_exit_code(0)
        .assert_contains("[background-command]")
        .assert_contains("[redirected-output]");
    laptop.run(&["plan", path_str(&file), "--deny", "redirected-output"]).await.assert_exit_code(2).assert_contains("1 problem");
    laptop.run(&["plan", path_str(&file), "--deny", "redirected"]).await.assert_exit_code(2).assert_contains("unknown lint `redirected`");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_reads_a_deepspeed_hostfile() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let laptop = fixture.new_laptop("laptop");
    let (hosts, made) = (fixture.root().join("hostfile"), fixture.root().join("made.yaml"));
    std::fs::write(&hosts, "gpu01 slots=4\ngpu02 slots=4\n").expect("written");
    let words = ["init", "--from", path_str(&hosts), "-o", path_str(&made), "--name", "wan22"];
    laptop.run(&words).await.assert_exit_code(0).assert_contains("a DeepSpeed hostfile, 2 hosts");
    laptop.run(&words).await.assert_exit_code(2).assert_contains("choose another file");
    let plan = laptop.run(&["plan", path_str(&made)]).await;
    plan.assert_exit_code(0);
    assert!(plan.stdout.contains("--nnodes=2 --nproc_per_node=4 --node_rank=<0-1>"), "{}", plan.stdout);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_render_only_with_all_values_known() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let laptop = fixture.new_laptop("laptop");
    let launch = "with: script\nshell: echo \"by hand $RANK of $WORLD_SIZE\"\nmaster_timeout: 60s\n".to_owned();
    let file = fixture.write_inventory("hand", &JobSpec { in_container: false, launch, ..JobSpec::default() });
    let auto = ["render", path_str(&file), "--set", "launch.master_port=auto"];
    laptop
        .run(&auto)
        .await
        .assert_exit_code(2)
        .assert_contains("the scripts need what only the hosts know: the master: free port")
        .assert_contains("--facts");
    let dir = fixture.root().join("scripts");
    laptop.run(&["render", path_str(&file), "--set", "launch.master_port=auto", "--facts", "-o", path_str(&dir)]).await.assert_exit_code(0);
    let out =
        std::process::Command::new("sh").stdin(std::fs::File::open(dir.join("gpu02.sh")).expect("the script")).output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "by hand 1 of 2\n", "{}", String::from_utf8_lossy(&out.stderr));
    fixture.assert_clean_and_stop().await;
}

/// What each rank of two hosts prints under a launcher, and the names of its logs.
async fn launch_and_read_ranks(fixture: &SandboxFixture, name: &str, launch: &str, contained: bool) -> Vec<String> {
    let command = format!("command: [--no_python, /bin/sh, \"{}/who\"]\n", fixture.control_dir().display());
    std::fs::write(fixture.control_dir().join("who"), "echo \"$RANK/$WORLD_SIZE $LOCAL_RANK on $ORCH_HOST of $ORCH_GPUS_PER_NODE\"\n")
        .expect("written");
    let job = JobSpec { nproc_per_node: 2, launch: format!("{launch}{command}"), in_container: contained, ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop(name), fixture.write_inventory(name, &job));
    laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0).assert_recap("OK").assert_contains("4 ok  0 failed of 4");
    fixture.assert_no_leftovers().await;
    rank_log_texts(&laptop, 4)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accelerate_and_deepspeed_assign_all_ranks() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let places = ["0/4 0 on gpu01 of 2", "1/4 1 on gpu01 of 2", "2/4 0 on gpu02 of 2", "3/4 1 on gpu02 of 2"];
    for (name, launch) in [
        ("acc", "with: accelerate\n"),
        ("ds", "with: deepspeed\n"),
        ("ds-own", "with: deepspeed\nrendezvous: hostfile\ngate: started\npython: python\n"),
    ] {
        assert_eq!(launch_and_read_ranks(&fixture, name, launch, name != "acc").await, places, "{name}");
    }
    fixture.assert_clean_and_stop().await;
}

/// Each host has its own number of processes where the launcher supports that: ranks continue where the previous host's end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unequal_gpu_counts_start_matching_ranks() {
    let fixture = SandboxFixture::start("{hosts: [{name: gpu01, gpus: 3}, {name: gpu02, gpus: 1}, {name: gpu03, gpus: 2}]}").await;
    let print_rank = "echo \"$RANK/$ORCH_WORLD_SIZE ${LOCAL_RANK:-0} on $ORCH_HOST of $ORCH_GPUS_PER_NODE\"";
    let unequal = |name: &str, launch: String| {
        let file = fixture.write_inventory(name, &JobSpec { launch, ..JobSpec::default() });
        let text = std::fs::read_to_string(&file).expect("an inventory").replace("  nproc_per_node: 1\n", "");
        fixture.write_yaml(name, &text)
    };
    let places = [
        "0/6 0 on gpu01 of 3",
        "1/6 1 on gpu01 of 3",
        "2/6 2 on gpu01 of 3",
        "3/6 0 on gpu02 of 1",
        "4/6 0 on gpu03 of 2",
        "5/6 1 on gpu03 of 2",
    ];
    std::fs::write(fixture.control_dir().join("who"), print_rank).expect("written");
    let own = format!(
        "with: deepspeed\nrendezvous: hostfile\ngate: started\ncommand: [--no_python, /bin/sh, \"{}/who\"]\n",
        fixture.control_dir().display()
    );
    for (name, launch) in [("each", format!("with: processes\ngate: started\nshell: '{print_rank}'\n")), ("own", own)] {
        let (laptop, file) = (fixture.new_laptop(name), unequal(name, launch));
        laptop.run(&["up", path_str(&file)]).await.assert_exit_code(0).assert_recap("OK").assert_contains("6 ok  0 failed of 6");
        assert_eq!(rank_log_texts(&laptop, 6), places, "{name}");
        fixture.assert_no_leftovers().await;
    }
    let laptop = fixture.new_laptop("script");
    laptop
        .run(&["up", path_str(&unequal("script", format!("with: script\nshell: '{print_rank}'\n")))])
        .await
        .assert_exit_code(0)
        .assert_recap("OK");
    assert_eq!(rank_log_texts(&laptop, 3), ["0/6 0 on gpu01 of 3", "1/6 0 on gpu02 of 1", "2/6 0 on gpu03 of 2"]);
    for (name, launch) in
        [("torch", "command: [t.py]\n"), ("acc", "with: accelerate\ncommand: [t.py]\n"), ("ds", "with: deepspeed\ncommand: [t.py]\n")]
    {
        let ended = laptop.run(&["up", path_str(&unequal(name, launch.to_owned()))]).await;
        ended
            .assert_exit_code(2)
            .assert_contains("gpu01 gives 3 GPUs and gpu02 gives 1")
            .assert_contains("needs one number for all hosts")
            .assert_contains("at most 1");
    }
    let bare = unequal("words", "with: processes\ncommand: [\"./a\", \"{{ nproc_per_node }}\"]\n".to_owned());
    laptop
        .run(&["plan", path_str(&bare)])
        .await
        .assert_exit_code(2)
        .assert_contains("`nproc_per_node` is not the same on all hosts: 3, 1, 2")
        .assert_contains("use world_size");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_wait_for_the_master_port() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let master = "import os, socket, time\n\
                  here = os.environ['BENCH']\n\
                  open(here + '/up.master', 'w').close()\n\
                  while not os.path.exists(here + '/listen'): time.sleep(0.02)\n\
                  s = socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT'])), backlog=8)\n\
                  while not os.path.exists(here + '/worker'): time.sleep(0.02)\n";
    std::fs::write(fixture.control_dir().join("master.py"), master).expect("written");
    let shell =
        "[ \"$RANK\" = 0 ] && exec python3 \"$BENCH/master.py\"\n  [ -e \"$BENCH/listen\" ] && echo 'it listened'; : >\"$BENCH/worker\"\n";
    let job = JobSpec { launch: format!("with: processes\ngate: port\nshell: |\n  {shell}"), ..JobSpec::default() };
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("gate", &job));
    let up = laptop.start(&["up", path_str(&file)]);
    crate::support::wait_until("the master is up", async || fixture.control_dir().join("up.master").exists().then_some(())).await;
    std::fs::write(fixture.control_dir().join("listen"), "").expect("written");
    up.wait_for_exit().await.assert_exit_code(0);
    assert_eq!(laptop.read_log("rank-1.log"), b"it listened\n");
    fixture.assert_clean_and_stop().await;
}
