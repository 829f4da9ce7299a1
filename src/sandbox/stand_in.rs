//! This program under another name: which stand-in is meant, and the small ones (sudo, date, hostname, python3, setsid).
//!
//! Uses `place` to find its host through the environment. A stand-in is a process of its own and talks on its own output.
#![expect(clippy::disallowed_methods, reason = "a stand-in is a program: it reads its environment and starts others")]

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::place::Place;
use super::program::{Answer, Here, become_command};
use super::{docker, launchers, nvidia, torchrun};

/// Acts as a stand-in if that is the name this program was started under; `main` calls it before anything else.
pub fn stand_in(argv0: &str, args: Vec<OsString>) -> Option<ExitCode> {
    let name = Path::new(argv0).file_name()?.to_str()?;
    if !matches!(
        name,
        "docker"
            | "nvidia-smi"
            | "torchrun"
            | "accelerate"
            | "deepspeed"
            | "sudo"
            | "date"
            | "hostname"
            | "python"
            | "python3"
            | "setsid"
            | "sandbox-shim"
    ) {
        return None;
    }
    let words: Vec<String> = match args.into_iter().map(OsString::into_string).collect() {
        Ok(words) => words,
        Err(word) => return Some(Answer::fail(125, format!("{name}: not UTF-8: {}", word.display())).say()),
    };
    if name == "setsid" {
        return Some(setsid(&words));
    }
    let Some(root) = std::env::var_os("SANDBOX_HOST") else {
        return Some(Answer::fail(125, format!("{name}: this is the stand-in of a sandbox host, and SANDBOX_HOST is not set")).say());
    };
    let here = Here {
        place: Place::at(PathBuf::from(root)),
        container: std::env::var("SANDBOX_CONTAINER").ok(),
        root: std::env::var_os("SANDBOX_SUDO").is_some(),
    };
    Some(match name {
        "docker" => docker::main(&here, &words),
        "nvidia-smi" => nvidia::main(&here, &words),
        "torchrun" => torchrun::main(&here, &words),
        "accelerate" => launchers::accelerate(&here, &words),
        "deepspeed" => launchers::deepspeed(&words),
        "sudo" => sudo(&here, &words),
        "date" => date(&here, &words),
        "hostname" => Answer::ok(hostname(&here, &words)).say(),
        "sandbox-shim" => shim(&here, &words),
        _ => python(&here, name, &words),
    })
}

fn shim(here: &Here, words: &[String]) -> ExitCode {
    match words.split_first() {
        Some((word, rest)) if word == "setsid" => setsid(rest),
        Some((word, rest)) if word == "container" => docker::supervise(here, rest),
        _ => Answer::fail(125, "sandbox-shim: not for people").say(),
    }
}

/// Makes the process the leader of its own session and becomes the command; `-c`: with its standard input as the session's terminal.
fn setsid(words: &[String]) -> ExitCode {
    let (terminal, words) = match words.split_first() {
        Some((first, rest)) if first == "-c" => (true, rest),
        _ => (false, words),
    };
    let Some((program, rest)) = words.split_first() else { return Answer::fail(1, "setsid: no command specified").say() };
    if rustix::process::getpgrp() == rustix::process::getpid() {
        // A group's leader cannot have a session of its own: as setsid(1) does, a child has it.
        return match Command::new(program).args(rest).process_group(0).spawn() {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => Answer::fail(127, format!("setsid: failed to execute {program}: {error}")).say(),
        };
    }
    if let Err(error) = rustix::process::setsid() {
        return Answer::fail(1, format!("setsid: {error}")).say();
    }
    if terminal && let Err(error) = rustix::process::ioctl_tiocsctty(std::io::stdin()) {
        return Answer::fail(1, format!("setsid: the controlling terminal: {error}")).say();
    }
    become_command(program, rest)
}

fn sudo(here: &Here, words: &[String]) -> ExitCode {
    let mut rest = words;
    while let Some((word, more)) = rest.split_first() {
        match word.as_str() {
            "-n" | "-E" | "-H" | "-S" => rest = more,
            "-u" => rest = more.get(1..).unwrap_or_default(),
            "--" => {
                rest = more;
                break;
            }
            _ => break,
        }
    }
    if here.place.faults().sudo_refused {
        return Answer::fail(1, "sudo: a password is required").say();
    }
    let Some((program, args)) = rest.split_first() else { return Answer::fail(1, "usage: sudo -h | -K | -k | -V").say() };
    let error = Command::new(program).args(args).env("SANDBOX_SUDO", "1").exec();
    Answer::fail(1, format!("sudo: {program}: {error}")).say()
}

/// The real program of this name, as the sandbox's tools have it.
fn real(here: &Here, name: &str) -> Option<PathBuf> {
    here.place.tools().split(':').map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

fn date(here: &Here, words: &[String]) -> ExitCode {
    let Some(program) = real(here, "date") else { return Answer::fail(127, "date: not found").say() };
    let skew = here.place.faults().clock_skew;
    let mut command = Command::new(program);
    if !words.iter().any(|word| word.starts_with("-d") || word.starts_with("--date") || word.starts_with("-r")) && skew != 0.0 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64() + skew;
        if cfg!(target_os = "linux") {
            command.args(["-d", &format!("@{now:.9}")]);
        } else {
            command.args(["-r", &format!("{now:.0}")]);
        }
    }
    let error = command.args(words).exec();
    Answer::fail(126, format!("date: {error}")).say()
}

fn hostname(here: &Here, words: &[String]) -> String {
    match words.first().map(String::as_str) {
        Some("-I" | "-i" | "--all-ip-addresses" | "--ip-address") => "127.0.0.1 \n".to_owned(),
        _ => format!("{}\n", here.place.settings().name),
    }
}

/// `python3 -m torch.distributed.run …` is torchrun, and so with the other launchers; anything else is the real python, if there is one.
fn python(here: &Here, name: &str, words: &[String]) -> ExitCode {
    let options = words.iter().take_while(|word| matches!(word.as_str(), "-u" | "-B" | "-E" | "-s" | "-I")).count();
    if let [module, launcher, rest @ ..] = words.get(options..).unwrap_or_default()
        && module == "-m"
    {
        match launcher.as_str() {
            "torch.distributed.run" | "torch.distributed.launch" => return torchrun::main(here, rest),
            "accelerate.commands.launch" => return launchers::accelerate(here, &[&["launch".to_owned()], rest].concat()),
            "deepspeed.launcher.runner" => return launchers::deepspeed(rest),
            _ => {}
        }
    }
    match real(here, name).or_else(|| real(here, "python3")) {
        Some(program) => become_command(&program.display().to_string(), words),
        None => Answer::fail(127, format!("sh: 1: {name}: not found")).say(),
    }
}
