//! Tasks of `prepare`: their results, their values, and their state after a laptop stops or dies.

use std::path::PathBuf;

use orchestrate::event::{EventKind, Phase};

use crate::support::{JobSpec, SandboxFixture, path_str, wait_until};

/// A job with tasks; `$BENCH` is the shared directory in scripts. Its ranks print a variable and end.
pub(crate) fn job_with_tasks(fixture: &SandboxFixture, in_container: bool, tasks: &str) -> JobSpec {
    let shared = fixture.control_dir().display().to_string();
    JobSpec {
        in_container,
        launch: "with: processes\ngate: none\nshell: 'echo \"rank $RANK got <$VALUE>\"'".to_owned(),
        top_level: format!("teardown: never\nprepare:\n{}", tasks.replace("$BENCH", &shared)),
        ..JobSpec::default()
    }
}

pub(crate) fn task_log(host: &str, number: u32) -> String {
    format!("task-{number}-{host}.log")
}

/// How often a script has appended a line to a file of the shared directory.
pub(crate) fn count_lines(fixture: &SandboxFixture, name: &str) -> usize {
    std::fs::read_to_string(fixture.control_dir().join(name)).unwrap_or_default().lines().count()
}

const ALL_RESULTS: &str = r#"
  - { name: install, run: "echo installing on {{ host.name }}; touch $BENCH/installed.{{ host.name }}", creates: "$BENCH/installed.{{ host.name }}*", tags: [wheel] }
  - { name: needless, run: "echo ran >>$BENCH/needless", unless: "test -d $BENCH" }
  - { name: by words, run: "echo nothing new", changed: "^Successfully" }
  - { name: value, hosts: workers, once: true, run: "echo noise >&2; echo \"a 'b' $\"", register: VALUE }
  - { name: own value, run: "echo {{ host.name }}", register: OWN }
  - { name: use it, run: "echo \"<$VALUE> <$OWN> <$ORCH_HOST>\"", changed: never }
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_run_changes_nothing() {
    for in_container in [true, false] {
        let fixture = SandboxFixture::with_hosts(3).await;
        let (laptop, file) =
            (fixture.new_laptop("laptop"), fixture.write_inventory("tasks", &job_with_tasks(&fixture, in_container, ALL_RESULTS)));
        let first = laptop.run(&["prepare", path_str(&file), "--progress", "plain"]).await;
        first
            .assert_exit_code(0)
            .assert_recap("OK")
            .assert_contains("task 1       install: changed gpu[01-03]")
            .assert_contains("task 2       needless: skipped gpu[01-03]: `unless` succeeded")
            .assert_contains("task 3       by words: ok gpu[01-03]")
            .assert_contains("task 4       value: ok gpu02")
            .assert_contains("tasks     changed 3  ok 10  skipped 3");
        assert_eq!(laptop.read_log(&task_log("gpu03", 1)), b"installing on gpu03\n");
        assert_eq!(laptop.read_log(&task_log("gpu03", 6)), b"<a 'b' $> <gpu03> <gpu03>\n");
        let boxes = fixture.containers(0);
        let second = laptop.run(&["prepare", path_str(&file), "--progress", "plain"]).await;
        second.assert_exit_code(0).assert_contains("install: skipped gpu[01-03]").assert_contains("tasks     changed 0  ok 10  skipped 6");
        assert_eq!(fixture.containers(0), boxes, "the container stays");
        let up = laptop.run(&["up", path_str(&file), "--progress", "plain"]).await;
        up.assert_exit_code(0).assert_recap("OK").assert_contains("tasks     changed 0  ok 10  skipped 6").assert_contains("3 ok");
        assert_eq!(fixture.containers(0), boxes, "the run uses the prepared container");
        let logs = laptop.run_dirs().last().expect("a run").join("logs/rank-2.log");
        assert_eq!(std::fs::read_to_string(logs).expect("its log"), "rank 2 got <a 'b' $>\n", "ranks have it too");
        assert_eq!(count_lines(&fixture, "needless"), 0);
        laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_host_ends_the_preparation_after_the_others() {
    let tasks = r#"
  - name: flaky
    run: 'echo try >>$BENCH/tries.{{ host.name }}; test {{ host.rank }} != 1 || { echo "no route to the mirror"; exit 7; }; sleep 1; echo >$BENCH/done.{{ host.name }}'
    retries: 2
    delay: 10ms
  - { name: later, run: "echo >$BENCH/later" }
"#;
    for in_container in [true, false] {
        let fixture = SandboxFixture::with_hosts(3).await;
        let (laptop, file) =
            (fixture.new_laptop("laptop"), fixture.write_inventory("failing", &job_with_tasks(&fixture, in_container, tasks)));
        let up = laptop.run(&["up", path_str(&file), "--progress", "plain"]).await;
        up.assert_exit_code(1)
            .assert_recap("FAILED")
            .assert_contains("FAILED gpu02 task 1: flaky: exit 7 (3 tries); last line: no route to the mirror")
            .assert_contains("task `flaky` failed on gpu02")
            .assert_contains("changed 2  failed 1")
            .assert_not_contains("later");
        assert_eq!((count_lines(&fixture, "tries.gpu02"), count_lines(&fixture, "tries.gpu01")), (3, 1));
        let exists = |name: &str| fixture.control_dir().join(name).exists();
        assert!(exists("done.gpu01") && exists("done.gpu03") && !exists("later"), "the other hosts finish the task, and nothing follows");
        assert!(!laptop.journal_kinds().iter().any(|kind| matches!(kind, EventKind::LauncherStarted { .. })));
        laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_are_no_line_of_text_fail_the_task() {
    let tasks = r#"
  - { name: lines, run: "printf 'a\\nb\\n'", register: VALUE }
"#;
    let fixture = SandboxFixture::with_hosts(1).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("values", &job_with_tasks(&fixture, false, tasks)));
    let prepare = async |run: &str| {
        laptop.run(&["prepare", path_str(&file), "--set", &format!("prepare=[{{name: v, run: {run:?}, register: VALUE}}]")]).await
    };
    prepare("printf 'a\\nb\\n'").await.assert_exit_code(1).assert_contains("its output cannot be registered: it has 2 lines");
    prepare("printf 'a\\033[31mb'").await.assert_exit_code(1).assert_contains("U+001B");
    prepare("printf '\\377'").await.assert_exit_code(1).assert_contains("it is not UTF-8");
    prepare("head -c 5000 /dev/zero | tr '\\0' x").await.assert_exit_code(1).assert_contains("longer than 4 KiB");
    prepare("head -c 4096 /dev/zero | tr '\\0' x").await.assert_exit_code(0);
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selected_tasks_run() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("select", &job_with_tasks(&fixture, false, ALL_RESULTS)));
    let list = laptop.run(&["prepare", path_str(&file), "--list-tasks", "--skip-tags", "wheel"]).await;
    list.assert_exit_code(0)
        .assert_contains("  2  needless   gpu[01-02]\n")
        .assert_not_contains("install")
        .assert_not_contains("preflight");
    let tagged = laptop.run(&["prepare", path_str(&file), "--tags", "wheel", "--progress", "plain"]).await;
    tagged.assert_exit_code(0).assert_contains("install: changed").assert_contains("own value: ok").assert_not_contains("needless");
    let late = laptop.run(&["prepare", path_str(&file), "--start-at", "use it", "--progress", "plain"]).await;
    late.assert_exit_code(0).assert_contains("use it: ok").assert_contains("value: ok").assert_not_contains("install");
    assert!(
        String::from_utf8_lossy(
            &std::fs::read(laptop.run_dirs().last().expect("a run").join("logs").join(task_log("gpu01", 6))).expect("its log")
        )
        .contains("<gpu01>")
    );
    laptop
        .run(&["prepare", path_str(&file), "--start-at", "instal"])
        .await
        .assert_exit_code(2)
        .assert_contains("no task is named `instal`")
        .assert_contains("`install`");
    laptop.run(&["prepare", path_str(&file), "--limit", "gpu01"]).await.assert_exit_code(2);
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

/// The places where a task can run, with its YAML: in the container, on a bare host, on the host beside a container.
const PLACES: [(bool, &str); 3] = [(true, ""), (false, ""), (true, "    in: host\n")];

/// A task that prints a line, then waits for a file.
const WAITING: &str = r#"
  - name: wait
    run: |
      echo "waiting on $ORCH_HOST"
      echo $$ >$BENCH/task.$ORCH_HOST.new; mv $BENCH/task.$ORCH_HOST.new $BENCH/task.$ORCH_HOST
      echo started >>$BENCH/starts
      until [ -e $BENCH/finish ]; do sleep 0.1; done
      echo finished
    retries: 3
"#;

async fn wait_for_tasks(fixture: &SandboxFixture, hosts: &[&str]) -> Vec<i32> {
    let mut pids = Vec::new();
    for host in hosts {
        let file: PathBuf = fixture.control_dir().join(format!("task.{host}"));
        pids.push(wait_until("the task runs", async || std::fs::read_to_string(&file).ok()?.trim().parse().ok()).await);
    }
    pids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_stops_a_task() {
    for (in_container, place) in PLACES {
        let fixture = SandboxFixture::with_hosts(2).await;
        let (laptop, file) = (
            fixture.new_laptop("laptop"),
            fixture.write_inventory("stop", &job_with_tasks(&fixture, in_container, &format!("{WAITING}{place}"))),
        );
        let up = laptop.start(&["up", path_str(&file)]);
        let pids = wait_for_tasks(&fixture, &["gpu01", "gpu02"]).await;
        up.send_signal("INT");
        up.wait_for_exit().await.assert_exit_code(130).assert_recap("STOPPED");
        assert!(pids.iter().all(|pid| !crate::signals::is_alive(*pid)), "the task's processes have ended");
        assert_eq!(count_lines(&fixture, "starts"), 2, "a stopped task is not tried again");
        laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_outlives_a_killed_laptop() {
    let (in_container, place) = PLACES[0];
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, other) = (fixture.new_laptop("laptop"), fixture.new_laptop("other"));
    let file = fixture.write_inventory("dead", &job_with_tasks(&fixture, in_container, &format!("{WAITING}{place}")));
    let up = laptop.start(&["up", path_str(&file)]);
    wait_for_tasks(&fixture, &["gpu01", "gpu02"]).await;
    up.send_signal("KILL");
    up.wait_for_exit().await;
    // While a task runs, it is not started twice: `up` and `attach` wait for it.
    let mut attach = other.start(&["attach", path_str(&file), "--progress", "plain"]);
    attach.wait_for_output("waiting on gpu02").await;
    let mut again = laptop.start(&["up", path_str(&file), "--progress", "plain"]);
    again.wait_for_output("are running: waiting for them").await;
    other.run(&["ps", path_str(&file)]).await.assert_exit_code(0).assert_contains("task 1 running");
    std::fs::write(fixture.control_dir().join("finish"), "").expect("written");
    let attached = attach.wait_for_exit().await;
    attached.assert_exit_code(0).assert_contains("rank 0 got <>");
    again.wait_for_exit().await.assert_exit_code(0).assert_recap("OK").assert_contains("wait: changed gpu[01-02]");
    assert_eq!(count_lines(&fixture, "starts"), 4, "once per run");
    // The laptop that removes a run fetches its logs first; a laptop that only follows may miss the last lines.
    let first_run = laptop.run_dirs().first().expect("the run that was cleared").join("logs");
    assert_eq!(std::fs::read(first_run.join(task_log("gpu02", 1))).expect("its log"), b"waiting on gpu02\nfinished\n");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_ends_an_unfollowed_task() {
    for (in_container, place) in PLACES {
        let fixture = SandboxFixture::with_hosts(2).await;
        let (laptop, other) = (fixture.new_laptop("laptop"), fixture.new_laptop("other"));
        let file = fixture.write_inventory("orphan", &job_with_tasks(&fixture, in_container, &format!("{WAITING}{place}")));
        let up = laptop.start(&["prepare", path_str(&file)]);
        let pids = wait_for_tasks(&fixture, &["gpu01", "gpu02"]).await;
        up.send_signal("KILL");
        up.wait_for_exit().await;
        other.run(&["down", path_str(&file), "--yes"]).await.assert_exit_code(0);
        assert!(pids.iter().all(|pid| !crate::signals::is_alive(*pid)), "the task's processes have ended");
        assert!(other.read_log(&task_log("gpu01", 1)).starts_with(b"waiting on gpu01\n"), "fetched like any log");
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_ends_a_task_and_what_it_started() {
    let tasks = r#"
  - { name: slow, run: "echo begun; sleep 300 & echo $! >$BENCH/child; wait", timeout: 5s }
"#;
    let fixture = SandboxFixture::with_hosts(1).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("slow", &job_with_tasks(&fixture, false, tasks)));
    let prepare = laptop.run(&["prepare", path_str(&file)]).await;
    prepare.assert_exit_code(1).assert_contains("not done after 5 s; last line: begun").assert_contains("raise its `timeout`");
    let child: i32 = std::fs::read_to_string(fixture.control_dir().join("child")).expect("a pid").trim().parse().expect("a number");
    assert!(!crate::signals::is_alive(child), "its child has ended too");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_run_refuses_prepare() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let tasks = "teardown: never\nprepare: [{ name: t, run: 'true' }]\n".to_owned();
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("live", &JobSpec { top_level: tasks, ..JobSpec::default() }));
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    fixture.wait_for_ranks(2).await;
    laptop
        .run(&["prepare", path_str(&file)])
        .await
        .assert_exit_code(3)
        .assert_contains("is live on gpu[01-02]: `prepare` would change what its ranks use");
    // A changed task list leaves an equal live run alone.
    let up = laptop.run(&["up", "-d", path_str(&file), "--set", "prepare=[{name: t, run: 'false'}]"]).await;
    up.assert_exit_code(0).assert_contains("prepare[1].run: \"true\" → \"false\"");
    let started = laptop.journal_kinds().iter().any(|kind| matches!(kind, EventKind::PhaseStarted { phase: Phase::Task(1) }));
    assert!(started, "the journal names the task's phase");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_of_some_hosts_refuses_prepare() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let tasks = "teardown: never\nprepare: [{ name: t, run: 'true' }]\n".to_owned();
    let (laptop, file) =
        (fixture.new_laptop("laptop"), fixture.write_inventory("part", &JobSpec { top_level: tasks, ..JobSpec::default() }));
    laptop.run(&["prepare", path_str(&file)]).await.assert_exit_code(0);
    laptop.run(&["up", path_str(&file), "--limit", "gpu01", "-d"]).await.assert_exit_code(0);
    fixture.wait_for_ranks(1).await;
    let prepare = laptop.run(&["prepare", path_str(&file), "--progress", "plain"]).await;
    prepare.assert_exit_code(3).assert_contains("is live on gpu01: `prepare` would change what its ranks use");
    fixture.wait_for_ranks(1).await;
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

/// A `sync` task sends what differs to every host; a second run changes nothing, a third sends the one file that differs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_task_sends_only_what_differs() {
    let tasks = r#"
  - { name: code, sync: { from: ./src, to: "~/code/{{ name }}", exclude: ["*.ckpt"] }, tags: [code] }
  - { name: one host, hosts: workers, once: true, sync: { from: ./src/lib, to: ~/lib } }
  - { name: see it, in: host, run: "cat ~/code/synced/train.py", changed: never }
"#;
    let fixture = SandboxFixture::with_hosts(3).await;
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("synced", &job_with_tasks(&fixture, false, &tasks.replace("in: host, ", "")));
    let source = file.parent().expect("a folder").join("src");
    let missing = laptop.run(&["prepare", path_str(&file), "--progress", "plain"]).await;
    missing.assert_exit_code(2).assert_contains("task `code`: ").assert_contains("src: no such directory on this laptop");
    for (name, text) in
        [("train.py", "print(1)"), ("lib/a.py", "a"), ("big.ckpt", "x"), (".git/HEAD", "x"), ("out/log", "x"), (".gitignore", "out/\n")]
    {
        let path = source.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    let prepare = async |more: &[&str]| laptop.run(&[&["prepare", path_str(&file), "--progress", "plain"], more].concat()).await;
    std::os::unix::fs::symlink("/etc/passwd", source.join("bad")).expect("a link");
    prepare(&[]).await.assert_exit_code(2).assert_contains("task `code`: ").assert_contains("src/bad: the link leads out of the directory");
    assert!(laptop.run_dirs().is_empty(), "no host was contacted");
    std::fs::remove_file(source.join("bad")).expect("removed");
    let listed = prepare(&["--list-tasks"]).await;
    listed.assert_exit_code(0).assert_contains("1  code      gpu[01-03]  tags: code").assert_contains("2  one host  gpu02");
    prepare(&["--dry-run"]).await.assert_exit_code(0).assert_contains("code");
    assert!(!fixture.host_home(0).join("work").exists(), "a dry run sends nothing");
    let first = prepare(&[]).await;
    first
        .assert_exit_code(0)
        .assert_contains("task 1       code: changed gpu[01-03]")
        .assert_contains("task 2       one host: changed gpu02")
        .assert_contains("tasks     changed 4  ok 3");
    for host in 0..3 {
        let there = fixture.host_home(host).join("code/synced");
        assert_eq!(std::fs::read_to_string(there.join("train.py")).expect("read"), "print(1)", "host {host}");
        assert_eq!(["big.ckpt", ".git", "out"].map(|name| there.join(name).exists()), [false; 3], "host {host}");
        assert_eq!(fixture.host_home(host).join("lib/a.py").exists(), host == 1, "host {host}");
    }
    let second = prepare(&[]).await;
    second.assert_exit_code(0).assert_contains("code: ok gpu[01-03]").assert_contains("tasks     changed 0  ok 7");
    std::fs::write(source.join("lib/a.py"), "longer").expect("written");
    let third = prepare(&["--tags", "code"]).await;
    third.assert_exit_code(0).assert_contains("tasks     changed 3");
    let journal = laptop.run_dirs().last().expect("a run").join("journal.jsonl");
    let journal = std::fs::read_to_string(journal).expect("a journal");
    assert_eq!(journal.matches("1 changed, 6 B (3 unchanged)").count(), 3);
    // A target that cannot be entered fails the task and everything after it.
    std::fs::remove_dir_all(fixture.host_home(2).join("code/synced")).expect("removed");
    std::fs::write(fixture.host_home(2).join("code/synced"), "a file").expect("written");
    let failed = prepare(&[]).await;
    failed
        .assert_exit_code(1)
        .assert_contains("task `code` failed on gpu03")
        .assert_contains("it is no directory")
        .assert_not_contains("see it:");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}
