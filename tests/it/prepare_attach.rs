//! Several tasks in a row, followed from a second laptop: to the last one, or to the one at which their command was killed.

use crate::prepare::{count_lines, job_with_tasks, task_log};
use crate::support::{SandboxFixture, path_str, wait_until};

/// Tasks that each say that they run, then wait for a file.
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
        // It only waits: it leaves the tasks running.
        second.send_signal("INT");
        second.wait_for_exit().await.assert_exit_code(130);
        allow(&fixture, "go2");
        attach.wait_for_exit().await.assert_exit_code(0).assert_contains("quick on gpu01").assert_contains("rank 0 got <>");
        up.wait_for_exit().await.assert_exit_code(0).assert_recap("OK");
        assert!(other.read_log(&task_log("gpu02", 2)).starts_with(b"quick on gpu02\n"), "a task that nobody saw running was fetched too");
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
    attach.wait_for_exit().await.assert_exit_code(1).assert_contains(sentence);
    laptop.run(&["attach", path_str(&file)]).await.assert_exit_code(1).assert_contains(sentence);
    // The command that goes on runs them all.
    allow(&fixture, "go2");
    laptop.run(&["prepare", path_str(&file)]).await.assert_exit_code(0).assert_contains("tasks     changed 6");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}
