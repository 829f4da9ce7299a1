//! What a log-out ends, as logind tells it, and the scope that a launch gets: systemd's programs are stand-ins, for systemd is not in a
//! test's machine.

use std::process::Stdio;

use orchestrate::plan::action::container::Container;
use orchestrate::plan::action::launch::Launch;
use orchestrate::plan::action::{Action, Do, Verdict};
use orchestrate::plan::facts::{HostFacts, Wanted, command};
use orchestrate::plan::logind::{Logind, SystemdScope, Unit};
use orchestrate::shell::Output;

use crate::{Host, asset, executable, until};

/// What the facts script tells of log-out where its shell and a rootless dockerd are in these cgroups.
fn logind(host: &Host, own: &str, engine: Option<&str>) -> Logind {
    host.write("cgroup", own);
    let mut script =
        command(&host.site(), &Wanted::default()).script.replace("/proc/self/cgroup", &host.at("cgroup").display().to_string());
    if let Some(engine) = engine {
        host.write("docker.pid", "4711\n");
        host.write("docker.cgroup", engine);
        script = script.replace("/run/user/$uid/docker.pid", &host.at("docker.pid").display().to_string());
        script = script.replace("/proc/$engine/cgroup", &host.at("docker.cgroup").display().to_string());
    }
    let out = host.shell().args(["-c", &script]).stdout(Stdio::piped()).output().expect("a shell");
    HostFacts::read(&String::from_utf8_lossy(&out.stdout)).logind
}

#[test]
fn facts_tell_what_logind_ends_at_log_out() {
    let host = Host::new();
    let said = host.at("asked");
    executable(
        &host.at("bin/loginctl"),
        &format!(
            "#!/bin/sh\necho \"$*\" >>'{}'\ncase $1 in\nshow-session) printf 'KillUserProcesses=yes\\nKillExcludeUsers=root\\n' ;;\nshow-user) echo Linger=no ;;\nesac\n",
            said.display()
        ),
    );
    let root = || vec!["root".to_owned()];
    let told = Logind { session: true, kill: Some(true), exclude: root(), linger: Some(false), ..Logind::default() };
    // A container, a session of sshd without PAM.
    for own in ["0::/\n", "12:pids:/docker/ab\n1:name=systemd:/docker/ab\n", "0::/system.slice/ssh.service\n", ""] {
        assert_eq!((logind(&host, own, None), said.exists()), (Logind::default(), false), "{own:?}: nobody is asked");
    }
    for own in [
        "0::/user.slice/user-1000.slice/session-4.scope\n",
        "9:pids:/\n1:name=systemd:/user.slice/user-1000.slice/session-c1.scope\n0::/\n",
    ] {
        assert_eq!(logind(&host, own, None), told, "{own:?}");
    }
    let manager = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker.service\n";
    for (engine, unit) in [
        (manager, Unit::Manager),
        ("0::/user.slice/user-1000.slice/session-4.scope\n", Unit::Session),
        ("0::/system.slice/engine.service\n", Unit::Other),
    ] {
        let found = logind(&host, "0::/\n", Some(engine));
        assert_eq!(found, Logind { session: false, engine: Some(unit), ..told.clone() }, "{engine:?}");
    }
    // Who cannot be asked has said nothing.
    executable(&host.at("bin/loginctl"), "#!/bin/sh\necho 'Failed to connect to bus: Host is down' >&2\nexit 1\n");
    assert_eq!(logind(&host, "0::/user.slice/user-0.slice/session-4.scope\n", None), Logind { session: true, ..Logind::default() });
}

/// A bare host's run whose launcher tells where it runs.
fn bare() -> Host {
    let host = Host::new();
    host.run("run1", "start_timeout=300\n");
    for (name, text) in
        [("node", asset("node.sh")), ("env", String::new()), ("argv", "set -- sh -c 'echo \"in ${SCOPE:-none}\"'\n".to_owned())]
    {
        host.write(&format!("h.in/run1/{name}"), &text);
    }
    host.write(
        "h.in/keeper",
        "echo $$ \"${SCOPE:-none}\" >\"${0%/*}/kept.new\"; mv \"${0%/*}/kept.new\" \"${0%/*}/kept\"; exec /bin/sleep 1000\n",
    );
    executable(
        &host.at("bin/systemd-run"),
        "#!/bin/sh\nSCOPE=\nwhile :; do case $1 in --*) SCOPE=\"$SCOPE$1 \" ;; *) break ;; esac; shift; done\n\
         [ -n \"$XDG_RUNTIME_DIR\" ] && SCOPE=\"$SCOPE$XDG_RUNTIME_DIR\"\nexport SCOPE\nexec \"$@\"\n",
    );
    host
}

/// Carries an action out in a real shell.
#[expect(clippy::panic, reason = "a fixture fails loudly")]
fn carry_out(host: &Host, action: &Action) -> Output {
    let Do::Script(command) = action.command() else { panic!("a script") };
    let mut shell = host.shell();
    shell.env_remove("XDG_RUNTIME_DIR").args(["-c", &command.script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let out = shell.output().expect("a shell");
    Output { code: out.status.code().unwrap_or(-1), stdout: out.stdout, stderr: out.stderr, ..Output::default() }
}

fn keeper(host: &Host, scope: SystemdScope) -> Action {
    Action::Container(Container {
        site: host.site(),
        spec: None,
        hash: String::new(),
        owner: String::new(),
        stop_grace: 0,
        gpus: None,
        me: String::new(),
        home: String::new(),
        recreate: false,
        checks: false,
        scope,
    })
}

#[test]
fn a_launch_on_a_bare_host_starts_in_its_scope() {
    let runtime = format!("--user --scope /run/user/{}", rustix::process::getuid().as_raw());
    for (scope, says) in
        [(SystemdScope::Inherited, "none"), (SystemdScope::System, "--scope --slice=system.slice"), (SystemdScope::User, runtime.as_str())]
    {
        let host = bare();
        let launch = Action::Launch(Launch { site: host.site(), secrets: Vec::new(), scope });
        let output = carry_out(&host, &launch);
        assert_eq!((output.code, output.complaint()), (0, "exit status 0".to_owned()));
        let log = || std::fs::read_to_string(host.at("h.out/run1.node.log")).unwrap_or_default();
        until("the launcher tells where it runs", || log().contains(&format!("in {says}")).then_some(()));
        // What is noted as the keeper is the keeper, and not what started it.
        let output = carry_out(&host, &keeper(&host, scope));
        let kept = until("the keeper tells where it runs", || std::fs::read_to_string(host.at("h.in/kept")).ok());
        let (pid, place) = kept.trim().split_once(' ').expect("two words");
        assert_eq!((place.trim(), output.text().split(' ').next()), (says, Some(pid)));
        let pid = rustix::process::Pid::from_raw(pid.parse().expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("ended");
    }
}

#[test]
fn a_scope_that_cannot_be_made_starts_nothing_and_is_told() {
    let host = bare();
    executable(&host.at("bin/systemd-run"), "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n");
    for action in
        [keeper(&host, SystemdScope::User), Action::Launch(Launch { site: host.site(), secrets: Vec::new(), scope: SystemdScope::User })]
    {
        let output = carry_out(&host, &action);
        let Verdict::Failed(trouble) = action.judge(&output) else { panic!("it failed: {output:?}") };
        assert!(trouble.what.ends_with(": Failed to connect to bus: No medium found"), "{}", trouble.what);
        assert!(trouble.hint.starts_with("`systemd-run --user --scope true` must work on h,"), "{}", trouble.hint);
    }
    assert!(!host.at("h.in/kept").exists() && !host.at("h.out/run1.node.pid").exists());
}
