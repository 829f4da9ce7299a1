//! docker's stand-in: the commands, their messages and exit codes, without a daemon. What it knows lies in `store`; what a container's main
//! process does is watched by `supervise`.
//!
//! Uses `place` and `processes`. Knows nothing of SSH and nothing of how `orchestrate` uses docker.

mod flags;
mod image;
mod inspect;
mod life;
mod login;
mod run;
mod store;
mod supervise;
mod tty;

use std::process::ExitCode;

use super::program::{Answer, Here};
use store::Store;

pub(super) use supervise::supervise;

/// The version it claims to be.
const VERSION: &str = "24.0.7";

/// How a command failed: its exit code and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    fn new(code: u8, text: impl Into<String>) -> Self {
        Failure { code, text: text.into() }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::new(1, format!("Error response from daemon: {error}"))
    }
}

/// Acts as `docker`.
pub(super) fn main(here: &Here, words: &[String]) -> ExitCode {
    match dispatch(here, words) {
        Ok(code) => code,
        Err(failure) => Answer::fail(failure.code, failure.text).say(),
    }
}

fn dispatch(here: &Here, words: &[String]) -> Result<ExitCode, Failure> {
    let mut words = words;
    let mut config = None;
    // Global flags: which daemon is meant makes no difference here.
    while let Some((word, rest)) = words.split_first() {
        if let Some(folder) = word.strip_prefix("--config=") {
            config = Some(folder);
        } else if word == "--config" {
            config = rest.first().map(String::as_str);
        }
        match word.as_str() {
            "-H" | "--host" | "--config" | "-c" | "--context" | "-l" | "--log-level" => words = rest.get(1..).unwrap_or_default(),
            _ if word.starts_with("--host=") || word.starts_with("--config=") || word.starts_with("--context=") => words = rest,
            "container" | "image" if rest.first().is_some_and(|next| !next.starts_with('-')) => break,
            "--version" | "-v" => return Ok(Answer::ok(format!("Docker version {VERSION}, build sandbox\n")).say()),
            _ => break,
        }
    }
    let (kind, words) = match words.split_first() {
        Some((kind, rest)) if kind == "container" || kind == "image" => (kind.as_str(), rest),
        _ => ("", words),
    };
    let Some((command, args)) = words.split_first() else { return Ok(Answer::ok("Usage:  docker [OPTIONS] COMMAND\n").say()) };
    faults(here, command, words)?;
    let store = Store::of(&here.place);
    let config = login::folder(config);
    let parsed =
        |anywhere| flags::of(command).parse(args, anywhere).map_err(|e| Failure::new(125, format!("{e}\nSee 'docker {command} --help'.")));
    match (kind, command.as_str()) {
        ("image", "inspect") => image::inspect(&store, &parsed(true)?).map(|a| a.say()),
        ("image", "ls") | (_, "images") => {
            Ok(image::list(&store, &flags::of("images").parse(args, true).map_err(|e| Failure::new(125, e))?).say())
        }
        (_, "pull") => image::pull(here, &store, &config, &parsed(true)?).map(|a| a.say()),
        (_, "login") => login::login(here, &config, &parsed(true)?).map(|a| a.say()),
        (_, "version") => inspect::version(&parsed(true)?).map(|a| a.say()),
        (_, "info") => inspect::info(here, &store, &parsed(true)?).map(|a| a.say()),
        (_, "run" | "create") => run::run(here, &store, &config, args, command),
        (_, "start") => life::start(here, &store, &parsed(true)?).map(|a| a.say()),
        (_, "exec") => run::exec(here, &store, args),
        (_, "inspect") => inspect::inspect(&store, &parsed(true)?).map(|a| a.say()),
        (_, "ps") | ("container", "ls") => {
            inspect::ps(&store, &flags::of("ps").parse(args, true).map_err(|e| Failure::new(125, e))?).map(|a| a.say())
        }
        (_, "stop") => life::stop(&store, &parsed(true)?).map(|a| a.say()),
        (_, "kill") => life::kill(&store, &parsed(true)?).map(|a| a.say()),
        (_, "rm") => life::remove(&store, &parsed(true)?).map(|a| a.say()),
        (_, "wait") => life::wait(&store, &parsed(true)?).map(|a| a.say()),
        (_, "logs") => life::logs(&store, &parsed(true)?),
        (_, "top") => life::top(&store, args).map(|a| a.say()),
        _ => Err(Failure::new(1, format!("docker: '{command}' is not a docker command.\nSee 'docker --help'"))),
    }
}

/// What is wrong with docker itself on this host.
fn faults(here: &Here, command: &str, words: &[String]) -> Result<(), Failure> {
    let faults = here.place.faults();
    // The stand-in stays in its place even so: a script that adds folders to its PATH must not come upon this machine's own docker.
    if faults.docker_missing {
        return Err(Failure::new(127, "sh: 1: docker: not found"));
    }
    if faults.hang_on.as_ref().is_some_and(|phrase| format!("docker {}", words.join(" ")).contains(phrase.as_str())) {
        loop {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
    }
    let socket = "unix:///var/run/docker.sock";
    if faults.docker_down {
        return Err(Failure::new(1, format!("Cannot connect to the Docker daemon at {socket}. Is the docker daemon running?")));
    }
    if faults.docker_permission_denied && !here.root {
        let verb = if command == "run" { "docker: " } else { "" };
        let code = if command == "run" { 126 } else { 1 };
        return Err(Failure::new(
            code,
            format!(
                "{verb}permission denied while trying to connect to the Docker daemon socket at {socket}: Get \
                 \"http://%2Fvar%2Frun%2Fdocker.sock/v1.43/containers/json\": dial unix /var/run/docker.sock: connect: permission denied"
            ),
        ));
    }
    Ok(())
}

/// No container of this name, as every command but `inspect` says it.
fn no_container(word: &str) -> Failure {
    Failure::new(1, format!("Error response from daemon: No such container: {word}"))
}
