//! Launchers beside torchrun, as far as real shells can show them: one process a GPU, lines before it, a port that is picked, restarts.

use crate::support::{Bench, Job, word};

/// What each rank says of itself, in the order of ranks.
fn said(laptop: &crate::support::Laptop, ranks: usize) -> Vec<String> {
    (0..ranks).map(|rank| String::from_utf8_lossy(&laptop.log(&format!("rank-{rank}.log"))).trim_end().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_a_gpu_knows_who_it_is() {
    let bench = Bench::hosts(2).await;
    let shell = "with: processes\ngpu_visibility: own\ngate: started\nsetup: |\n  set -- none\n  export PREPARED=\"$LOCAL_RANK $#\"\nshell: |\n  \
                 echo \"$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE node $NODE_RANK gpu $CUDA_VISIBLE_DEVICES jax $JAX_PROCESS_ID \
                 ${JAX_COORDINATOR_ADDRESS##*:} $JAX_LOCAL_DEVICE_IDS prepared $PREPARED args $#\"\n  \
                 test \"$JAX_COORDINATOR_ADDRESS\" = \"$MASTER_ADDR:$MASTER_PORT\" && cat \"$ORCH_HOSTFILE\"\n";
    for (name, contained) in [("processes", true), ("bare", false)] {
        let job = Job { nproc: 2, launch: shell.to_owned(), contained, ..Job::default() };
        let (laptop, file) = (bench.laptop(name), bench.inventory(name, &job));
        laptop.run(&["up", word(&file)]).await.code(0).recap("OK").says("4 ok  0 failed of 4");
        let expected: Vec<String> = (0..4)
            .map(|rank| {
                let (node, local) = (rank / 2, rank % 2);
                let port = bench.port;
                format!(
                    "{rank}/4 {local}/2 node {node} gpu {local} jax {rank} {port} 0 prepared {local} 1 args 0\ngpu01 slots=2\ngpu02 slots=2"
                )
            })
            .collect();
        assert_eq!(said(&laptop, 4), expected);
        bench.nothing_left().await;
    }
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_process_ends_its_siblings_and_is_named() {
    let bench = Bench::hosts(2).await;
    let launch = format!("with: processes\ngate: started\ncommand: [/bin/sh, \"{}/payload\"]\n", bench.bench().display());
    let job = Job { nproc: 2, launch, ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("fails", &job));
    let up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(4).await;
    bench.end(Some(3), 7);
    up.end().await.code(1).says("rank 3");
    for rank in 0..3 {
        assert!(bench.bench().join(format!("term.{rank}")).exists(), "rank {rank} heard TERM");
    }
    bench.nothing_left().await;
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_is_picked_on_the_master() {
    let bench = Bench::hosts(2).await;
    let job = Job { launch: "shell: echo \"port $MASTER_PORT $ORCH_MASTER_PORT\"\nwith: script\n".to_owned(), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("auto", &job));
    laptop.run(&["up", word(&file), "--set", "launch.master_port=auto"]).await.code(0);
    let said = said(&laptop, 2);
    let port: u16 = said[0].split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or_else(|| panic!("{said:?}"));
    assert!((20_000..30_000).contains(&port), "{port}");
    assert_eq!(said, vec![format!("port {port} {port}"); 2]);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_its_launcher_starts_again_fails_nobody() {
    let bench = Bench::hosts(1).await;
    bench.job("if [ \"$RANK.$TORCHELASTIC_RESTART_COUNT\" = 1.0 ]; then echo 'dies once'; exit 9; fi");
    let command = format!("command: [--no_python, /bin/sh, \"{}/payload\"]", bench.bench().display());
    let job = Job { nproc: 2, launch: format!("rendezvous: c10d\nmax_restarts: 1\n{command}\n"), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("again", &job));
    let up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(2).await;
    bench.end(None, 0);
    up.end().await.code(0).recap("OK");
    bench.nothing_left().await;
    bench.done().await;
}

/// A config of this project, from wherever the laptop stands.
fn config(name: &str) -> String {
    format!("{}/configs/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_satisfies_the_constraints_is_suggested() {
    let bench = Bench::hosts(1).await;
    let laptop = bench.laptop("laptop");
    let file = config("wan22.yaml");
    let refused = laptop.run(&["plan", &file, "--set", "launch.nproc_per_node=8"]).await;
    refused.code(2).says("launch.nproc_per_node 5, 4, 2, 1 on 2 hosts satisfies all constraints");
    let suggested = laptop.run(&["plan", &file, "--suggest", "--set", "launch.nproc_per_node=8"]).await;
    suggested.code(0).says("--set launch.nproc_per_node=5");
    assert_eq!(suggested.out.lines().nth(1).map(|l| l.split_whitespace().collect::<Vec<_>>()), Some(vec!["2", "5", "10", "6"]));
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lint_warns_or_refuses() {
    let bench = Bench::hosts(1).await;
    let laptop = bench.laptop("laptop");
    let job = Job { launch: "with: script\nshell: |\n  nohup ./train.sh > train.log &\n".to_owned(), ..Job::default() };
    let file = bench.inventory("linted", &job);
    laptop.run(&["plan", word(&file)]).await.code(0).says("[background-command]").says("[redirected-output]");
    laptop.run(&["plan", word(&file), "--deny", "redirected-output"]).await.code(2).says("1 problem");
    laptop.run(&["plan", word(&file), "--deny", "redirected"]).await.code(2).says("there is no lint `redirected`");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inventory_is_begun_from_a_hostfile() {
    let bench = Bench::hosts(1).await;
    let laptop = bench.laptop("laptop");
    let (hosts, made) = (bench.path().join("hostfile"), bench.path().join("made.yaml"));
    std::fs::write(&hosts, "gpu01 slots=4\ngpu02 slots=4\n").expect("written");
    let words = ["init", "--from", word(&hosts), "-o", word(&made), "--name", "wan22"];
    laptop.run(&words).await.code(0).says("a DeepSpeed hostfile, 2 hosts");
    laptop.run(&words).await.code(2).says("choose another with -o");
    let plan = laptop.run(&["plan", word(&made)]).await;
    plan.code(0);
    assert!(plan.out.contains("--nnodes=2 --nproc_per_node=4 --node_rank=1"), "{}", plan.out);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_rendered_only_when_all_is_known() {
    let bench = Bench::hosts(2).await;
    let laptop = bench.laptop("laptop");
    let launch = "with: script\nshell: echo \"by hand $RANK of $WORLD_SIZE\"\nmaster_timeout: 60s\n".to_owned();
    let file = bench.inventory("hand", &Job { contained: false, launch, ..Job::default() });
    let auto = ["render", word(&file), "--set", "launch.master_port=auto"];
    laptop.run(&auto).await.code(2).says("not known without asking: the master: free port").says("--facts");
    let dir = bench.path().join("scripts");
    laptop.run(&["render", word(&file), "--set", "launch.master_port=auto", "--facts", "-o", word(&dir)]).await.code(0);
    let out =
        std::process::Command::new("sh").stdin(std::fs::File::open(dir.join("gpu02.sh")).expect("the script")).output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "by hand 1 of 2\n", "{}", String::from_utf8_lossy(&out.stderr));
    bench.done().await;
}

/// What each rank of two hosts says of itself under a launcher, and what its log is called.
async fn everybody(bench: &Bench, name: &str, launch: &str, contained: bool) -> Vec<String> {
    let command = format!("command: [--no_python, /bin/sh, \"{}/who\"]\n", bench.bench().display());
    std::fs::write(bench.bench().join("who"), "echo \"$RANK/$WORLD_SIZE $LOCAL_RANK on $ORCH_HOST of $ORCH_GPUS_PER_NODE\"\n")
        .expect("written");
    let job = Job { nproc: 2, launch: format!("{launch}{command}"), contained, ..Job::default() };
    let (laptop, file) = (bench.laptop(name), bench.inventory(name, &job));
    laptop.run(&["up", word(&file)]).await.code(0).recap("OK").says("4 ok  0 failed of 4");
    bench.nothing_left().await;
    said(&laptop, 4)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accelerate_and_deepspeed_give_every_rank_its_place() {
    let bench = Bench::hosts(2).await;
    let places = ["0/4 0 on gpu01 of 2", "1/4 1 on gpu01 of 2", "2/4 0 on gpu02 of 2", "3/4 1 on gpu02 of 2"];
    for (name, launch) in [
        ("acc", "with: accelerate\n"),
        ("ds", "with: deepspeed\n"),
        ("ds-own", "with: deepspeed\nrendezvous: hostfile\ngate: started\npython: python\n"),
    ] {
        assert_eq!(everybody(&bench, name, launch, name != "acc").await, places, "{name}");
    }
    bench.done().await;
}

/// Each host its own number, where the launcher can be told: the ranks go on where the host before ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_with_different_numbers_of_gpus_run_what_they_have() {
    let bench = Bench::new("{hosts: [{name: gpu01, gpus: 3}, {name: gpu02, gpus: 1}, {name: gpu03, gpus: 2}]}").await;
    let who = "echo \"$RANK/$ORCH_WORLD_SIZE ${LOCAL_RANK:-0} on $ORCH_HOST of $ORCH_GPUS_PER_NODE\"";
    let unequal = |name: &str, launch: String| {
        let file = bench.inventory(name, &Job { launch, ..Job::default() });
        let text = std::fs::read_to_string(&file).expect("an inventory").replace("  nproc_per_node: 1\n", "");
        bench.write(name, &text)
    };
    let places = [
        "0/6 0 on gpu01 of 3",
        "1/6 1 on gpu01 of 3",
        "2/6 2 on gpu01 of 3",
        "3/6 0 on gpu02 of 1",
        "4/6 0 on gpu03 of 2",
        "5/6 1 on gpu03 of 2",
    ];
    std::fs::write(bench.bench().join("who"), who).expect("written");
    let own = format!(
        "with: deepspeed\nrendezvous: hostfile\ngate: started\ncommand: [--no_python, /bin/sh, \"{}/who\"]\n",
        bench.bench().display()
    );
    for (name, launch) in [("each", format!("with: processes\ngate: started\nshell: '{who}'\n")), ("own", own)] {
        let (laptop, file) = (bench.laptop(name), unequal(name, launch));
        laptop.run(&["up", word(&file)]).await.code(0).recap("OK").says("6 ok  0 failed of 6");
        assert_eq!(said(&laptop, 6), places, "{name}");
        bench.nothing_left().await;
    }
    let laptop = bench.laptop("script");
    laptop.run(&["up", word(&unequal("script", format!("with: script\nshell: '{who}'\n")))]).await.code(0).recap("OK");
    assert_eq!(said(&laptop, 3), ["0/6 0 on gpu01 of 3", "1/6 0 on gpu02 of 1", "2/6 0 on gpu03 of 2"]);
    for (name, launch) in
        [("torch", "command: [t.py]\n"), ("acc", "with: accelerate\ncommand: [t.py]\n"), ("ds", "with: deepspeed\ncommand: [t.py]\n")]
    {
        let ended = laptop.run(&["up", word(&unequal(name, launch.to_owned()))]).await;
        ended.code(2).says("gpu01 gives 3 GPUs and gpu02 gives 1").says("has one number for all").says("at most 1");
    }
    let bare = unequal("words", "with: processes\ncommand: [\"./a\", \"{{ nproc_per_node }}\"]\n".to_owned());
    laptop.run(&["plan", word(&bare)]).await.code(2).says("`nproc_per_node` is not the same on all hosts: 3, 1, 2").says("use world_size");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_workers_wait_until_the_masters_port_listens() {
    let bench = Bench::hosts(2).await;
    let master = "import os, socket, time\n\
                  here = os.environ['BENCH']\n\
                  open(here + '/up.master', 'w').close()\n\
                  while not os.path.exists(here + '/listen'): time.sleep(0.02)\n\
                  s = socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT'])), backlog=8)\n\
                  while not os.path.exists(here + '/worker'): time.sleep(0.02)\n";
    std::fs::write(bench.bench().join("master.py"), master).expect("written");
    let shell =
        "[ \"$RANK\" = 0 ] && exec python3 \"$BENCH/master.py\"\n  [ -e \"$BENCH/listen\" ] && echo 'it listened'; : >\"$BENCH/worker\"\n";
    let job = Job { launch: format!("with: processes\ngate: port\nshell: |\n  {shell}"), ..Job::default() };
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("gate", &job));
    let up = laptop.start(&["up", word(&file)]);
    crate::support::until("the master is up", async || bench.bench().join("up.master").exists().then_some(())).await;
    std::fs::write(bench.bench().join("listen"), "").expect("written");
    up.end().await.code(0);
    assert_eq!(laptop.log("rank-1.log"), b"it listened\n");
    bench.done().await;
}
