//! What logind kills at logout, and the scope of a launch. The systemd programs are stand-ins, since a test machine may have no
//! systemd.

use std::process::Stdio;

use orchestrate::plan::action::container::StartContainer;
use orchestrate::plan::action::launch::StartLauncher;
use orchestrate::plan::action::{Action, ActionResult};
use orchestrate::plan::facts::HostFacts;
use orchestrate::plan::facts_request::{FactsRequest, facts_command};
use orchestrate::plan::logind::{LogindSettings, SystemdScope, SystemdUnitKind};

use crate::{TestHost, read_asset, run_action, wait_until, write_program};

/// The logind part of the facts if the shell and a rootless dockerd are in these cgroups.
fn read_logind_facts(host: &TestHost, own: &str, engine: Option<&str>) -> LogindSettings {
    host.write_file("cgroup", own);
    let mut script = facts_command(&host.host_context(), &FactsRequest::default())
        .script
        .replace("/proc/self/cgroup", &host.path("cgroup").display().to_string());
    if let Some(engine) = engine {
        host.write_file("docker.pid", "4711\n");
        host.write_file("docker.cgroup", engine);
        script = script.replace("/run/user/$uid/docker.pid", &host.path("docker.pid").display().to_string());
        script = script.replace("/proc/$engine/cgroup", &host.path("docker.cgroup").display().to_string());
    }
    let out = host.shell_command().args(["-c", &script]).stdout(Stdio::piped()).output().expect("a shell");
    HostFacts::parse(&String::from_utf8_lossy(&out.stdout)).logind
}

#[test]
fn facts_report_what_logind_kills_at_logout() {
    let host = TestHost::new();
    let reported = host.path("asked");
    write_program(
        &host.path("bin/loginctl"),
        &format!(
            "#!/bin/sh\necho \"$*\" >>'{}'\ncase $1 in\nshow-session) printf 'KillUserProcesses=yes\\nKillExcludeUsers=root\\n' ;;\nshow-user) echo Linger=no ;;\nesac\n",
            reported.display()
        ),
    );
    let root = || vec!["root".to_owned()];
    let output = LogindSettings {
        in_session: true,
        kill_user_processes: Some(true),
        kill_exclude_users: root(),
        linger: Some(false),
        ..LogindSettings::default()
    };
    // In a container, or in an sshd session without PAM.
    for own in ["0::/\n", "12:pids:/docker/ab\n1:name=systemd:/docker/ab\n", "0::/system.slice/ssh.service\n", ""] {
        assert_eq!(
            (read_logind_facts(&host, own, None), reported.exists()),
            (LogindSettings::default(), false),
            "{own:?}: loginctl is not called"
        );
    }
    for own in [
        "0::/user.slice/user-1000.slice/session-4.scope\n",
        "9:pids:/\n1:name=systemd:/user.slice/user-1000.slice/session-c1.scope\n0::/\n",
    ] {
        assert_eq!(read_logind_facts(&host, own, None), output, "{own:?}");
    }
    let manager = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker.service\n";
    for (engine, unit) in [
        (manager, SystemdUnitKind::UserManager),
        ("0::/user.slice/user-1000.slice/session-4.scope\n", SystemdUnitKind::Session),
        ("0::/system.slice/engine.service\n", SystemdUnitKind::Other),
    ] {
        let found = read_logind_facts(&host, "0::/\n", Some(engine));
        assert_eq!(found, LogindSettings { in_session: false, dockerd_unit: Some(unit), ..output.clone() }, "{engine:?}");
    }
    // If loginctl fails, its values stay unknown.
    write_program(&host.path("bin/loginctl"), "#!/bin/sh\necho 'Failed to connect to bus: Host is down' >&2\nexit 1\n");
    assert_eq!(
        read_logind_facts(&host, "0::/user.slice/user-0.slice/session-4.scope\n", None),
        LogindSettings { in_session: true, ..LogindSettings::default() }
    );
}

/// A bare host's run whose launcher prints its scope.
fn prepare_bare_host() -> TestHost {
    let host = TestHost::new();
    host.prepare_run("run1", "start_timeout=300\n");
    for (name, text) in
        [("node", read_asset("node.sh")), ("env", String::new()), ("argv", "set -- sh -c 'echo \"in ${SCOPE:-none}\"'\n".to_owned())]
    {
        host.write_file(&format!("h.in/run1/{name}"), &text);
    }
    host.write_file(
        "h.in/keeper",
        "echo $$ \"${SCOPE:-none}\" >\"${0%/*}/kept.new\"; mv \"${0%/*}/kept.new\" \"${0%/*}/kept\"; exec /bin/sleep 1000\n",
    );
    write_program(
        &host.path("bin/systemd-run"),
        "#!/bin/sh\nSCOPE=\nwhile :; do case $1 in --*) SCOPE=\"$SCOPE$1 \" ;; *) break ;; esac; shift; done\n\
         [ -n \"$XDG_RUNTIME_DIR\" ] && SCOPE=\"$SCOPE$XDG_RUNTIME_DIR\"\nexport SCOPE\nexec \"$@\"\n",
    );
    host
}

fn keeper_action(host: &TestHost, scope: SystemdScope) -> Action {
    Action::StartContainer(StartContainer {
        context: host.host_context(),
        spec: None,
        container_hash: String::new(),
        owner: String::new(),
        stop_grace: 0,
        gpus_flag: None,
        user_ids: String::new(),
        home: String::new(),
        recreate: false,
        has_leftover_checks: false,
        scope,
    })
}

#[test]
fn bare_host_launch_runs_in_its_scope() {
    let runtime = format!("--user --scope /run/user/{}", rustix::process::getuid().as_raw());
    for (scope, expected) in
        [(SystemdScope::Inherited, "none"), (SystemdScope::System, "--scope --slice=system.slice"), (SystemdScope::User, runtime.as_str())]
    {
        let host = prepare_bare_host();
        let launch =
            Action::StartLauncher(StartLauncher { context: host.host_context(), secrets: Vec::new(), scope, registered: Vec::new() });
        let output = run_action(&host, &launch);
        assert_eq!((output.exit_code, output.error_line()), (0, "exit status 0".to_owned()));
        let log = || std::fs::read_to_string(host.path("h.out/run1.node.log")).unwrap_or_default();
        wait_until("the launcher prints its scope", || log().contains(&format!("in {expected}")).then_some(()));
        // The recorded keeper pid is that of the keeper, not of systemd-run.
        let output = run_action(&host, &keeper_action(&host, scope));
        let kept = wait_until("the keeper writes its scope", || std::fs::read_to_string(host.path("h.in/kept")).ok());
        let (pid, location) = kept.trim().split_once(' ').expect("two words");
        assert_eq!((location.trim(), output.stdout_text().split(' ').next()), (expected, Some(pid)));
        let pid = rustix::process::Pid::from_raw(pid.parse().expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("ended");
    }
}

#[test]
fn failed_systemd_scope_starts_nothing() {
    let host = prepare_bare_host();
    write_program(&host.path("bin/systemd-run"), "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n");
    for action in [
        keeper_action(&host, SystemdScope::User),
        Action::StartLauncher(StartLauncher {
            context: host.host_context(),
            secrets: Vec::new(),
            scope: SystemdScope::User,
            registered: Vec::new(),
        }),
    ] {
        let output = run_action(&host, &action);
        let ActionResult::Failed(trouble) = action.judge(&output) else { panic!("it failed: {output:?}") };
        assert!(trouble.message.ends_with(": Failed to connect to bus: No medium found"), "{}", trouble.message);
        assert!(trouble.hint.starts_with("`systemd-run --user --scope true` must work on h,"), "{}", trouble.hint);
    }
    assert!(!host.path("h.in/kept").exists() && !host.path("h.out/run1.node.pid").exists());
}
