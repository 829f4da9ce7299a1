//! Several tasks in a row, followed from a second laptop: to the last one, or to the one during which their command was killed.

use orchestrate::sandbox::Faults;

use crate::prepare::{count_lines, job_with_tasks, task_log};
use crate::support::{CliProcess, Laptop, SandboxFixture, path_str, wait_until};

/// Tasks that each print a line, then wait for a file.
const TWO_STEPS: &str = r#"
  - { name: first, run: "echo first >>$BENCH/starts; echo first on $ORCH_HOST; until [ -e $BENCH/go1 ]; do sleep 0.1; done" }
  - { name: between, run: "echo quick on $ORCH_HOST" }
  - { name: last, run: "echo last on $ORCH_HOST; until [ -e $BENCH/go2 ]; do sleep 0.1; done" }
"#;

fn allow(fixture: &SandboxFixture, file: &str) {
    std::fs::write(fixture.control_dir().join(file), "").expect("written");
}

async fn wait_for_first_task(fixture: &SandboxFixture) {
    wait_until("the first task runs on both hosts", async || (count_lines(fixture, "starts") == 2).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_follows_every_task_and_the_launch() {
    for in_container in [true, false] {
        let fixture = SandboxFixture::with_hosts(2).await;
        let [laptop, other, third] = ["laptop", "other", "third"].map(|name| fixture.new_laptop(name));
        let file = fixture.write_inventory("row", &job_with_tasks(&fixture, in_container, TWO_STEPS));
        let up = laptop.start(&["up", path_str(&file)]);
        wait_for_first_task(&fixture).await;
        let mut attach = other.start(&["attach", path_str(&file), "--progress", "plain"]);
        let mut second = third.start(&["up", path_str(&file), "--progress", "plain"]);
        attach.wait_for_output("first on gpu02").await;
        second.wait_for_output("first on gpu02").await;
        allow(&fixture, "go1");
        attach.wait_for_output("last on gpu02").await;
        second.wait_for_output("last on gpu02").await;
        // The second `up` only waits: it leaves the tasks running.
        second.send_signal("INT");
        second.wait_for_exit().await.assert_exit_code(130);
        allow(&fixture, "go2");
        attach.wait_for_exit().await.assert_exit_code(0).assert_contains("quick on gpu01").assert_contains("rank 0 got <>");
        up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK");
        assert!(
            other.read_log(&task_log("gpu02", 2)).starts_with(b"quick on gpu02\n"),
            "the log of a task that ended unobserved was fetched too"
        );
        laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
        fixture.assert_clean_and_stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_names_the_tasks_that_a_killed_command_left() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("left", &job_with_tasks(&fixture, false, TWO_STEPS));
    let prepare = laptop.start(&["prepare", path_str(&file)]);
    wait_for_first_task(&fixture).await;
    prepare.send_signal("KILL");
    prepare.wait_for_exit().await;
    let mut attach = laptop.start(&["attach", path_str(&file), "--progress", "plain"]);
    attach.wait_for_output("first on gpu02").await;
    allow(&fixture, "go1");
    let sentence = "the command that ran the tasks has ended before its last task: `between`, `last` did not run; continue with \
                    `orchestrate prepare";
    attach.wait_for_exit().await.assert_exit_code(1).assert_says(sentence);
    laptop.run(&["attach", path_str(&file)]).await.assert_exit_code(1).assert_says(sentence);
    // A new `prepare` runs all of them.
    allow(&fixture, "go2");
    laptop.run(&["prepare", path_str(&file)]).await.assert_exit_code(0).assert_contains("tasks     changed 6");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

/// A task that ends when a file exists on its host.
const OWN_STEPS: &str = r#"
  - { name: alone, run: "echo alone on $ORCH_HOST; until [ -e $BENCH/go.$ORCH_HOST ]; do sleep 0.1; done; echo $ORCH_HOST has ended" }
  - { name: never, run: "echo never" }
"#;

/// Starts `prepare` and waits until its first task runs on both hosts.
async fn start_prepare(laptop: &Laptop, file: &str) -> CliProcess {
    let mut prepare = laptop.start(&["prepare", file, "--progress", "plain"]);
    prepare.wait_for_output("alone on gpu01").await;
    prepare.wait_for_output("alone on gpu02").await;
    prepare
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_gives_up_a_host_that_is_gone() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("gone", &job_with_tasks(&fixture, false, OWN_STEPS));
    let prepare = start_prepare(&laptop, path_str(&file)).await;
    prepare.send_signal("KILL");
    prepare.wait_for_exit().await;
    let give_up = ["--progress", "plain", "--set", "ssh.give_up=3s"];
    let mut attach = laptop.start(&[&["attach", path_str(&file)], &give_up[..]].concat());
    attach.wait_for_output("alone on gpu01").await;
    attach.wait_for_output("alone on gpu02").await;
    let gone = Faults { drop_after_bytes: Some(0), ..Faults::default() };
    fixture.set_faults("gpu02", &gone);
    fixture.sandbox.drop_connections("gpu02").expect("a host");
    attach.wait_for_output("gpu02: no connection").await;
    assert!(attach.is_running(), "a task runs on the other host");
    allow(&fixture, "go.gpu01");
    let lost = "gpu02 could not be reached: whether its task has ended is not known; try again with `orchestrate attach";
    let attached = attach.wait_for_exit().await;
    attached
        .assert_exit_code(4)
        .assert_contains("gpu01 has ended")
        .assert_contains("gpu02 is given up after 3 s")
        .assert_says(lost)
        .assert_not_contains("a task failed");
    // A host that is unreachable from the start is not reported as ended.
    laptop.run(&["attach", path_str(&file)]).await.assert_exit_code(4).assert_says(lost);
    // It is reachable again in time: its task is followed to the end.
    fixture.set_faults("gpu02", &Faults::default());
    let mut attach = laptop.start(&["attach", path_str(&file), "--progress", "plain"]);
    attach.wait_for_output("are running: following them").await;
    fixture.set_faults("gpu02", &gone);
    fixture.sandbox.drop_connections("gpu02").expect("a host");
    attach.wait_for_output("gpu02 is given up after 10 min").await;
    allow(&fixture, "go.gpu02");
    fixture.set_faults("gpu02", &Faults::default());
    let attached = attach.wait_for_exit().await;
    attached
        .assert_exit_code(1)
        .assert_contains("gpu02 has ended")
        .assert_contains("`never` did not run")
        .assert_contains("alone  changed 0  ok 2");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach_says_that_tasks_were_stopped_or_removed() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let [laptop, other, third] = ["laptop", "other", "third"].map(|name| fixture.new_laptop(name));
    let file = fixture.write_inventory("halted", &job_with_tasks(&fixture, true, OWN_STEPS));
    let prepare = start_prepare(&laptop, path_str(&file)).await;
    let mut attach = other.start(&["attach", path_str(&file), "--progress", "plain"]);
    attach.wait_for_output("alone on gpu02").await;
    prepare.send_signal("INT");
    prepare.wait_for_exit().await.assert_exit_code(130);
    attach.wait_for_exit().await.assert_exit_code(1).assert_contains("the tasks were stopped by another command").assert_recap("STOPPED");
    // `down` from another laptop also removes the run.
    let prepare = start_prepare(&laptop, path_str(&file)).await;
    let mut attach = other.start(&["attach", path_str(&file), "--progress", "plain"]);
    attach.wait_for_output("alone on gpu02").await;
    third.run(&["down", "--yes", path_str(&file)]).await.assert_exit_code(0);
    let attached = attach.wait_for_exit().await;
    attached.assert_exit_code(1).assert_not_contains("a task failed").assert_recap("STOPPED");
    prepare.wait_for_exit().await;
    fixture.assert_clean_and_stop().await;
}
