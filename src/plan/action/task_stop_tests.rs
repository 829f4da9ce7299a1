//! A task whose run is stopped.

use super::*;

#[test]
fn stop_that_came_first_is_obeyed() {
    let host = TaskHost::new(host_task(script("echo ran")));
    assert_eq!(host.stop(None).exit_code, 0);
    assert!(matches!(host.result(), ActionResult::Failed(_)));
    assert_eq!(host.log(), "", "nothing ran");
}

/// Counts TERM in a child of the script, which saves its work for a second, and dies by its own. A shell that is signaled while it starts a
/// child may run its trap in both: none is started until the signal came.
const SAVING_CHILD: &str = "(stopped=''; sleep 600 & until read -r name </proc/$!/comm && [ \"$name\" = sleep ]; do :; done
trap 'echo TERM >>terms; stopped=1' TERM; : >ready
while [ -z \"$stopped\" ]; do wait; done; (trap '' TERM; exec sleep 1); touch saved) &
wait
";

/// Starts a task; once its file `ready` is there, stops its run.
fn stop_when_ready(host: &TaskHost, grace: Duration) -> CommandOutput {
    assert!(host.output_of(&host.run.start_command()).is_success());
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !host.dir.path().join("ready").exists() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    host.stop(Some(grace))
}

/// What a script prints after its TERM still has a reader, which is a pipe where its output is a value.
#[test]
fn stopped_task_with_a_value_may_print_while_it_saves() {
    let text = script("trap 'echo saving && touch saved; exit 7' TERM\ntouch ready\nwhile :; do sleep 0.1; done\n");
    let host = TaskHost::new(HostTask { register: Some("V".to_owned()), ..host_task(text) });
    assert_eq!(stop_when_ready(&host, Duration::from_secs(30)).exit_code, 0);
    assert!(matches!(host.result(), ActionResult::Failed(Issue { message, .. }) if message.starts_with("exit 7")));
    assert!(host.dir.path().join("saved").exists());
}

/// What became of the task above after this time, or after a stop where there is `None`.
fn end_of_saving_child(timeout: Option<u64>) -> (ActionResult, TaskHost) {
    let host = TaskHost::new(HostTask { timeout: Duration::from_secs(timeout.unwrap_or(120)), ..host_task(script(SAVING_CHILD)) });
    if timeout.is_none() {
        assert_eq!(stop_when_ready(&host, Duration::from_secs(30)).exit_code, 0);
    }
    (host.result(), host)
}

#[test]
fn processes_of_a_task_get_one_term() {
    let has_ended = |(result, host): (ActionResult, TaskHost), message: &str| {
        match result {
            ActionResult::Failed(Issue { message: found, .. }) => assert!(found.starts_with(message), "{found}"),
            other => panic!("{other:?}"),
        }
        assert!(host.dir.path().join("saved").exists(), "{message}: it had its time");
        assert_eq!(std::fs::read_to_string(host.dir.path().join("terms")).expect("a signal"), "TERM\n", "{message}");
    };
    has_ended(end_of_saving_child(None), "signal 15 (TERM)");
    // On a busy machine the time may be over before the script is ready for the signal: then it gets more.
    for timeout in [1, 4, 16, 64] {
        let end = end_of_saving_child(Some(timeout));
        if end.1.dir.path().join("terms").exists() || timeout == 64 {
            return has_ended(end, &format!("not done after {timeout} s"));
        }
    }
}

/// A shell's child that has not begun its program has the shell's trap still, and loses a TERM with it.
#[test]
fn program_that_begins_after_its_term_gets_another() {
    let text = "(trap 'touch asked' TERM; touch ready; until [ -e asked ]; do sleep 0.1; done; exec sleep 600) &\nwait\n";
    let host = TaskHost::new(host_task(script(text)));
    let output = stop_when_ready(&host, Duration::from_secs(60));
    assert_eq!((output.exit_code, output.stdout_text().contains("KILL")), (0, false), "{}", output.stdout_text());
}
