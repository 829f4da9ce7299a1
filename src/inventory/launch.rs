//! The launch block: which launcher, which command for which host, and how the ranks start and stop.
//!
//! Uses templates, words and checks. Knows nothing of the flags that launchers take, except those that nobody may give twice.

use std::time::Duration;

use super::check::Check;
use super::schema::nearest;
use super::scope::{MASTER_PORT, Scope};
use super::template::{self, Piece};
use super::tree::{Kind, Node, Place, shorten};
use super::words::{self, Part};
use super::{Gate, Launch, Launcher, Payload, Rendezvous, Start};

/// The block's own settings, with `command` standing for the command of node rank 0.
pub(super) fn launch(scope: &Scope<'_>, node: &Node, command: Payload, check: &mut Check) -> Launch {
    let read = |key: &str| node.get(key).map(|node| scope.eval(node, None));
    let (with, rendezvous, port, python) = (read("with"), read("rendezvous"), read("master_port"), read("python"));
    let (start, gate, timeout) = (read("start"), read("gate"), read("master_timeout"));
    let (ready, grace) = (read("ready_when"), read("stop_grace"));
    let with = launcher(with.as_ref(), rendezvous.as_ref(), check);
    let starts = [("master-first", Start::MasterFirst), ("together", Start::Together)];
    let start = start.and_then(|node| check.word(&node, &starts)).unwrap_or(Start::MasterFirst);
    let default = if with == Launcher::Script { Gate::Started } else { Gate::Port };
    Launch {
        with,
        master_port: port.map_or(Some(MASTER_PORT), |node| master_port(&node, check)),
        command,
        python: python.and_then(|node| check.text_that(&node, valid_python)).unwrap_or_else(|| "python3".to_owned()),
        start,
        gate: self::gate(gate.as_ref(), start, check).unwrap_or(default),
        master_timeout: timeout.and_then(|node| check.duration(&node)).unwrap_or(Duration::from_secs(300)),
        ready_when: ready.and_then(|node| check.text_that(&node, valid_regex)),
        stop_grace: grace.and_then(|node| check.duration(&node)).unwrap_or(Duration::from_secs(60)),
    }
}

fn launcher(with: Option<&Node>, rendezvous: Option<&Node>, check: &mut Check) -> Launcher {
    const LATER: [&str; 3] = ["accelerate", "deepspeed", "processes"];
    let script = match with {
        Some(node) => match check.text(node) {
            Some(text) if LATER.contains(&text.as_str()) => {
                check.wrong(&node.place, format!("{text}: not supported yet"), "use torchrun or script");
                false
            }
            Some(_) => check.word(node, &[("torchrun", false), ("script", true)]).unwrap_or(false),
            None => false,
        },
        None => false,
    };
    let kind = rendezvous.and_then(|node| check.word(node, &[("static", Rendezvous::Static), ("c10d", Rendezvous::C10d)]));
    if script && let Some(node) = rendezvous {
        check.wrong(&node.place, "only torchrun has a rendezvous", "leave it out, or set with: torchrun");
    }
    if script { Launcher::Script } else { Launcher::Torchrun(kind.unwrap_or(Rendezvous::Static)) }
}

fn master_port(node: &Node, check: &mut Check) -> Option<u16> {
    if matches!(&node.kind, Kind::Scalar { text, .. } if text == "auto") {
        check.wrong(&node.place, "auto: not supported yet", format!("write a port that is free on the master, like {MASTER_PORT}"));
        return None;
    }
    check.port(node)
}

fn gate(node: Option<&Node>, start: Start, check: &mut Check) -> Option<Gate> {
    let node = node?;
    let gate = check.word(node, &[("port", Gate::Port), ("started", Gate::Started), ("none", Gate::None)])?;
    if start == Start::Together && gate != Gate::None {
        check.wrong(&node.place, "with start: together nobody waits at a gate", "leave one of the two out");
    }
    Some(gate)
}

fn valid_python(text: &str) -> Result<(), (String, String)> {
    if text.is_empty() || text.starts_with('-') || text.contains(char::is_whitespace) {
        return Err((
            format!("`{}` is not an interpreter", shorten(text)),
            "name one program, like python3 or /opt/venv/bin/python".to_owned(),
        ));
    }
    Ok(())
}

fn valid_regex(text: &str) -> Result<(), (String, String)> {
    if text.is_empty() {
        return Err(("an empty pattern is found in every line".to_owned(), "leave the key out".to_owned()));
    }
    match regex::RegexBuilder::new(text).size_limit(1 << 20).build() {
        Ok(_) => Ok(()),
        Err(error) => {
            let hint = match error {
                regex::Error::CompiledTooBig(_) => "make its repetitions smaller",
                _ => "write \\( for a plain bracket, \\. for a plain dot",
            };
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Err((format!("not a regular expression: {why}"), hint.to_owned()))
        }
    }
}

/// What one host runs.
pub(super) fn payload(scope: &Scope<'_>, launch: &Node, host: usize, check: &mut Check) -> Payload {
    let nothing = Payload::Argv(Vec::new());
    match (launch.get("command"), launch.get("shell")) {
        (Some(_), Some(shell)) => {
            check.wrong(&shell.place, "`command` and `shell` are both given", "keep one of them");
            nothing
        }
        (None, None) => {
            check.wrong(&launch.place, "`command` is missing", "write it like [train.py, --lr, \"1e-3\"]");
            nothing
        }
        (Some(command), None) => Payload::Argv(argv(scope, command, host, check)),
        (None, Some(shell)) => {
            if !scope.is_script() {
                check.wrong(&shell.place, "only `with: script` runs a shell", "write the training script and its words as `command`");
            }
            let text = check.text(&scope.eval(shell, Some(host))).unwrap_or_default();
            if text.trim().is_empty() {
                check.wrong(&shell.place, "an empty script", "write the lines that each host runs");
            }
            Payload::Shell(text)
        }
    }
}

fn argv(scope: &Scope<'_>, command: &Node, host: usize, check: &mut Check) -> Vec<String> {
    let before = check.problems.len();
    let words = match &command.kind {
        Kind::Scalar { text, .. } => line(scope, text, command, host, check),
        Kind::List(items) => items.iter().flat_map(|item| spliced(scope, item, host, check)).collect(),
        Kind::Map(_) | Kind::Unknown(_) => {
            check.wrong(&command.place, format!("{} where a command is expected", command.what()), "write a list of words, or one line");
            return Vec::new();
        }
    };
    if words.is_empty() && check.problems.len() == before && !command.is_unknown() {
        check.wrong(&command.place, "an empty command", "write it like [train.py, --lr, \"1e-3\"]");
    }
    if !scope.is_script() {
        for_torchrun(&words, command, check);
    }
    words
}

/// A command written as one line.
fn line(scope: &Scope<'_>, text: &str, command: &Node, host: usize, check: &mut Check) -> Vec<String> {
    let pieces = match template::pieces(text) {
        Ok(Some(pieces)) => pieces,
        Ok(None) => vec![Piece::Text(text.to_owned())],
        Err(_) => {
            // The evaluation says what is wrong.
            drop(scope.eval(command, Some(host)));
            return Vec::new();
        }
    };
    let parts: Vec<Part> = if let [Piece::Expression(_)] = pieces.as_slice() {
        let node = scope.eval(command, Some(host));
        match &node.kind {
            Kind::List(items) => return items.iter().filter_map(|item| check.text(item)).collect(),
            Kind::Unknown(text) => vec![Part::Value(text.clone())],
            Kind::Scalar { .. } | Kind::Map(_) => check.text(&node).map(Part::Typed).into_iter().collect(),
        }
    } else {
        pieces.iter().map(|piece| part(scope, piece, &command.place, host)).collect()
    };
    words::split(&parts).unwrap_or_else(|(says, hint)| {
        check.wrong(&command.place, says, hint);
        Vec::new()
    })
}

fn part(scope: &Scope<'_>, piece: &Piece, place: &Place, host: usize) -> Part {
    match piece {
        Piece::Text(text) => Part::Typed(text.clone()),
        Piece::Expression(_) => Part::Value(scope.part(piece, place, Some(host)).0),
    }
}

/// One word of a list; an expression that gives a list gives all its words.
fn spliced(scope: &Scope<'_>, item: &Node, host: usize, check: &mut Check) -> Vec<String> {
    let written_list = matches!(item.kind, Kind::List(_));
    let node = scope.eval(item, Some(host));
    match &node.kind {
        Kind::List(items) if !written_list => items.iter().filter_map(|item| check.text(item)).collect(),
        _ => check.text(&node).into_iter().collect(),
    }
}

/// torchrun and its flags are built by us; the command begins with the script.
fn for_torchrun(words: &[String], command: &Node, check: &mut Check) {
    const OWNED: [&str; 12] = [
        "nnodes",
        "nproc_per_node",
        "node_rank",
        "rdzv_id",
        "rdzv_backend",
        "rdzv_endpoint",
        "rdzv_conf",
        "master_addr",
        "master_port",
        "no_python",
        "local_addr",
        "standalone",
    ];
    let Some(first) = words.first() else { return };
    let program = first.rsplit('/').next().unwrap_or_default();
    let place = command.items().first().map_or(&command.place, |node| &node.place);
    let python = program.strip_prefix("python").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'));
    if program == "torchrun"
        || words.iter().take(4).any(|word| matches!(word.as_str(), "torch.distributed.run" | "torch.distributed.launch"))
    {
        check.wrong(
            place,
            "the launcher stands in the command",
            "begin with the training script: `with: torchrun` starts torchrun with every flag it needs",
        );
    } else if python {
        check.wrong(
            place,
            format!("`{program}` stands before the script"),
            "begin with the script, or with -m and a module; launch.python names the interpreter",
        );
    } else if matches!(program, "bash" | "sh" | "accelerate" | "deepspeed") {
        check.wrong(
            place,
            format!("torchrun cannot start `{program}`"),
            "use `with: script` for a command that starts the ranks itself, or begin with --no_python for a rank that is no Python script",
        );
    } else if let Some(flag) = first.strip_prefix('-').filter(|_| !matches!(first.as_str(), "-m" | "--no_python" | "--no-python")) {
        let name = flag.trim_start_matches('-').split('=').next().unwrap_or_default().replace('-', "_");
        let hint = match name.as_str() {
            "nproc_per_node" | "master_port" => format!("set launch.{name}"),
            "rdzv_backend" => "set launch.rendezvous".to_owned(),
            "nnodes" | "node_rank" => "leave it out: the list of hosts decides".to_owned(),
            "master_addr" => "set master".to_owned(),
            name if nearest(name, OWNED).is_some() => "leave it out: it is given to torchrun on every host".to_owned(),
            _ => "begin with the script, or with -m and a module: torchrun's flags are built here".to_owned(),
        };
        check.wrong(place, format!("`{}` stands before the script", shorten(first)), hint);
    }
}
