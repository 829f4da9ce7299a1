//! The launch block: which launcher, which command for which host, and how the ranks start and stop.
//!
//! Uses templates, words, flags and checks. Knows nothing of what launchers are called with.

use std::time::Duration;

use super::check::Check;
use super::scope::{MASTER_PORT, Scope};
use super::template::{self, Piece};
use super::tree::{Kind, Node, Place, shorten};
use super::words::{self, Part};
use super::{Form, Gate, Launch, Launcher, Payload, Rendezvous, Start, Visibility, flags};

/// The most times that a launcher may start its workers again.
const RESTART_LIMIT: u32 = 1000;

/// The block's own settings, with `command` standing for the command of node rank 0.
pub(super) fn launch(scope: &Scope<'_>, node: &Node, command: Payload, check: &mut Check) -> Launch {
    let read = |key: &str| node.get(key).map(|node| scope.eval(node, None));
    let (with, rendezvous, port, python) = (read("with"), read("rendezvous"), read("master_port"), read("python"));
    let (start, gate, timeout) = (read("start"), read("gate"), read("master_timeout"));
    let (ready, grace, args, setup) = (read("ready_when"), read("stop_grace"), read("args"), read("setup"));
    let with = launcher(with.as_ref(), rendezvous.as_ref(), check);
    let starts = [("master-first", Start::MasterFirst), ("together", Start::Together)];
    let start = start.and_then(|node| check.word(&node, &starts)).unwrap_or(Start::MasterFirst);
    let default = if with == Launcher::Script { Gate::Started } else { Gate::Port };
    let hostfile = with == Launcher::Deepspeed(Form::Hostfile);
    let hosts = u32::try_from(scope.facts().names.len()).unwrap_or(u32::MAX);
    Launch {
        with,
        master_port: port.map_or(Some(MASTER_PORT), |node| master_port(scope, &node, check)),
        command,
        args: args.map(|node| flags::args(with.word(), hostfile, &node, check)).unwrap_or_default(),
        setup: setup.and_then(|node| check.text_that(&node, valid_setup)),
        python: python.and_then(|node| check.text_that(&node, valid_python)).unwrap_or_else(|| "python3".to_owned()),
        visibility: visibility(with, read("gpu_visibility").as_ref(), check),
        max_restarts: elastic(with, read("max_restarts").as_ref(), (0, RESTART_LIMIT), check).unwrap_or(0),
        min_nodes: elastic(with, read("min_nodes").as_ref(), (1, hosts), check),
        start,
        gate: self::gate(gate.as_ref(), start, check).unwrap_or(default),
        master_timeout: timeout.and_then(|node| check.duration(&node)).unwrap_or(Duration::from_secs(300)),
        ready_when: ready.and_then(|node| check.text_that(&node, valid_regex)),
        stop_grace: grace.and_then(|node| check.duration(&node)).unwrap_or(Duration::from_secs(60)),
    }
}

fn launcher(with: Option<&Node>, rendezvous: Option<&Node>, check: &mut Check) -> Launcher {
    let words = ["torchrun", "accelerate", "deepspeed", "processes", "script"].map(|word| (word, word));
    let word = with.and_then(|node| check.word(node, &words)).unwrap_or("torchrun");
    let refuse = |node: &Node, says: &str, hint: &str, check: &mut Check| check.wrong(&node.place, says, hint);
    let meeting = |check: &mut Check| {
        let words = [("static", Rendezvous::Static), ("c10d", Rendezvous::C10d)];
        rendezvous.and_then(|node| check.word(node, &words)).unwrap_or(Rendezvous::Static)
    };
    let is = |text: &str| rendezvous.is_some_and(|node| matches!(&node.kind, Kind::Scalar { text: t, .. } if t == text));
    match (word, rendezvous) {
        ("deepspeed", _) if is("hostfile") => Launcher::Deepspeed(Form::Hostfile),
        ("deepspeed", Some(node)) => {
            let words = [("static", Rendezvous::Static), ("c10d", Rendezvous::C10d), ("hostfile", Rendezvous::Static)];
            Launcher::Deepspeed(Form::Torchrun(check.word(node, &words).unwrap_or(Rendezvous::Static)))
        }
        ("deepspeed", None) => Launcher::Deepspeed(Form::Torchrun(Rendezvous::Static)),
        ("torchrun", _) => Launcher::Torchrun(meeting(check)),
        ("accelerate", _) => {
            if let Some(node) = rendezvous.filter(|_| !is("static")) {
                refuse(node, "accelerate meets by the static rendezvous", "leave it out, or set with: torchrun", check);
            }
            Launcher::Accelerate
        }
        (_, Some(node)) => {
            refuse(node, "only torchrun has a rendezvous", "leave it out, or set with: torchrun", check);
            if word == "processes" { Launcher::Processes } else { Launcher::Script }
        }
        ("processes", None) => Launcher::Processes,
        (_, None) => Launcher::Script,
    }
}

fn visibility(with: Launcher, node: Option<&Node>, check: &mut Check) -> Visibility {
    let Some(node) = node else { return Visibility::All };
    if with != Launcher::Processes {
        check.wrong(&node.place, "only `with: processes` gives its processes GPUs of their own", "leave it out: LOCAL_RANK chooses");
    }
    check.word(node, &[("all", Visibility::All), ("own", Visibility::Own)]).unwrap_or(Visibility::All)
}

/// What only torchrun with c10d can do: begin with fewer hosts, start workers again.
fn elastic(with: Launcher, node: Option<&Node>, (least, most): (u32, u32), check: &mut Check) -> Option<u32> {
    let node = node?;
    let number = check.number(node, least, most);
    if !with.ranks_are_handed_out() && number != Some(0) {
        let says = "only torchrun with rendezvous: c10d starts workers again or begins with fewer hosts";
        check.wrong(&node.place, says, "set launch.rendezvous: c10d, or leave it out: with static ranks one dead worker ends the gang");
    }
    number
}

fn master_port(scope: &Scope<'_>, node: &Node, check: &mut Check) -> Option<u16> {
    if matches!(&node.kind, Kind::Scalar { text, .. } if text == "auto") {
        return scope.facts().known.master_port;
    }
    check.port(node)
}

fn valid_setup(text: &str) -> Result<(), (String, String)> {
    if text.trim().is_empty() {
        return Err(("empty lines set nothing up".to_owned(), "leave the key out".to_owned()));
    }
    Ok(())
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
            if !matches!(scope.with().as_str(), "script" | "processes") {
                let says = "only `with: script` and `with: processes` run a shell";
                check.wrong(&shell.place, says, "write the training script and its words as `command`");
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
    flags::command(&scope.with(), &words, command, check);
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
