//! This program under another name: which stand-in is meant, and the small ones (sudo, date, hostname, python3, setsid).
//!
//! A stand-in finds its host through the environment. It is a process of its own with its own output.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::fake_host::FakeHost;
use super::fake_program::{ProgramContext, ProgramOutput, exec_program};
use super::{docker, launchers, nvidia_smi, torchrun};

/// Acts as a stand-in if that is the name this program was started under; `main` calls it before anything else.
pub fn dispatch_program(argv0: &str, args: Vec<OsString>) -> Option<ExitCode> {
    let name = Path::new(argv0).file_name()?.to_str()?;
    let main: fn(&ProgramContext, &[String]) -> ExitCode = match name {
        "docker" => docker::docker_main,
        "nvidia-smi" => nvidia_smi::nvidia_smi_main,
        "torchrun" => torchrun::torchrun_main,
        "accelerate" => launchers::accelerate_main,
        "deepspeed" => |_, words| launchers::deepspeed_main(words),
        "sudo" => sudo_main,
        "date" => date_main,
        "hostname" => |here, words| ProgramOutput::ok(hostname_output(here, words)).print(),
        "python" => |here, words| python_main(here, "python", words),
        "python3" => |here, words| python_main(here, "python3", words),
        "setsid" => |_, words| setsid_main(words),
        "sandbox-shim" => shim_main,
        _ => return None,
    };
    let words: Vec<String> = match args.into_iter().map(OsString::into_string).collect() {
        Ok(words) => words,
        Err(word) => return Some(ProgramOutput::fail(125, format!("{name}: not UTF-8: {}", word.display())).print()),
    };
    if name == "setsid" {
        return Some(setsid_main(&words));
    }
    let Some(root) = std::env::var_os("SANDBOX_HOST") else {
        return Some(
            ProgramOutput::fail(125, format!("{name}: this is the stand-in of a sandbox host, and SANDBOX_HOST is not set")).print(),
        );
    };
    let here = ProgramContext {
        host: FakeHost::from_root(PathBuf::from(root)),
        container_id: std::env::var("SANDBOX_CONTAINER").ok(),
        via_sudo: std::env::var_os("SANDBOX_SUDO").is_some(),
    };
    Some(main(&here, &words))
}

fn shim_main(context: &ProgramContext, args: &[String]) -> ExitCode {
    match args.split_first() {
        Some((word, rest)) if word == "setsid" => setsid_main(rest),
        Some((word, rest)) if word == "container" => docker::supervise_container(context, rest),
        _ => ProgramOutput::fail(125, "sandbox-shim: internal program of the sandbox, not for direct use").print(),
    }
}

/// Makes the process the leader of its own session and becomes the command; `-c`: with its standard input as the session's terminal.
fn setsid_main(args: &[String]) -> ExitCode {
    let (terminal, words) = match args.split_first() {
        Some((first, rest)) if first == "-c" => (true, rest),
        _ => (false, args),
    };
    let Some((program, rest)) = words.split_first() else { return ProgramOutput::fail(1, "setsid: no command specified").print() };
    if rustix::process::getpgrp() == rustix::process::getpid() {
        // A group's leader cannot have a session of its own: as setsid(1) does, a child has it.
        return match Command::new(program).args(rest).process_group(0).spawn() {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => ProgramOutput::fail(127, format!("setsid: failed to execute {program}: {error}")).print(),
        };
    }
    if let Err(error) = rustix::process::setsid() {
        return ProgramOutput::fail(1, format!("setsid: {error}")).print();
    }
    if terminal && let Err(error) = rustix::process::ioctl_tiocsctty(std::io::stdin()) {
        return ProgramOutput::fail(1, format!("setsid: the controlling terminal: {error}")).print();
    }
    exec_program(program, rest)
}

fn sudo_main(context: &ProgramContext, words: &[String]) -> ExitCode {
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
    if context.host.faults().sudo_refused {
        return ProgramOutput::fail(1, "sudo: a password is required").print();
    }
    let Some((program, args)) = rest.split_first() else { return ProgramOutput::fail(1, "usage: sudo -h | -K | -k | -V").print() };
    let error = Command::new(program).args(args).env("SANDBOX_SUDO", "1").exec();
    ProgramOutput::fail(1, format!("sudo: {program}: {error}")).print()
}

/// The real program of this name, as the sandbox's tools have it.
fn find_real_program(context: &ProgramContext, name: &str) -> Option<PathBuf> {
    context.host.tools_path_variable().split(':').map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

fn date_main(context: &ProgramContext, args: &[String]) -> ExitCode {
    let Some(program) = find_real_program(context, "date") else { return ProgramOutput::fail(127, "date: not found").print() };
    let skew = context.host.faults().clock_skew;
    let mut command = Command::new(program);
    if !args.iter().any(|word| word.starts_with("-d") || word.starts_with("--date") || word.starts_with("-r")) && skew != 0.0 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64() + skew;
        if cfg!(target_os = "linux") {
            command.args(["-d", &format!("@{now:.9}")]);
        } else {
            command.args(["-r", &format!("{now:.0}")]);
        }
    }
    let error = command.args(args).exec();
    ProgramOutput::fail(126, format!("date: {error}")).print()
}

fn hostname_output(context: &ProgramContext, args: &[String]) -> String {
    match args.first().map(String::as_str) {
        Some("-I" | "-i" | "--all-ip-addresses" | "--ip-address") => "127.0.0.1 \n".to_owned(),
        _ => format!("{}\n", context.host.settings().name),
    }
}

/// `python3 -m torch.distributed.run …` is torchrun, and so with the other launchers; anything else is the real python, if there is one.
fn python_main(context: &ProgramContext, name: &str, args: &[String]) -> ExitCode {
    let options = args.iter().take_while(|word| matches!(word.as_str(), "-u" | "-B" | "-E" | "-s" | "-I")).count();
    if let [module, launcher, rest @ ..] = args.get(options..).unwrap_or_default()
        && module == "-m"
    {
        match launcher.as_str() {
            "torch.distributed.run" | "torch.distributed.launch" => return torchrun::torchrun_main(context, rest),
            "accelerate.commands.launch" => return launchers::accelerate_main(context, &[&["launch".to_owned()], rest].concat()),
            "deepspeed.launcher.runner" => return launchers::deepspeed_main(rest),
            _ => {}
        }
    }
    match find_real_program(context, name).or_else(|| find_real_program(context, "python3")) {
        Some(program) => exec_program(&program.display().to_string(), args),
        None => ProgramOutput::fail(127, format!("sh: 1: {name}: not found")).print(),
    }
}
