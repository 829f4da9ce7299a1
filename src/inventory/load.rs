//! From texts to an [`Inventory`]: every file read, laid over each other, and looked at whole, so that all problems are told at once.
//!
//! Uses every part of the room. Knows no files: names and texts come in.

use std::sync::OnceLock;

use super::check::Check;
use super::scope::{Facts, Scope, is_given};
use super::tree::{Entry, Kind, Node, Path, Place, shorten};
use super::{Engine, Gpus, HashText, Host, Inventory, Known, Problem, container, expand, hosts, job, names, raw, schema};

/// What values of `--set` are said to stand in.
const SET: &str = "--set";
/// Where runs live on the hosts, where nothing is said.
const RUN_DIR: &str = "~/.orchestrate";

/// A file as it was read: its name as given, and its text.
#[derive(Debug, Clone)]
pub struct Source {
    /// For messages.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// The files, laid over each other and not yet evaluated.
#[derive(Debug, Clone)]
pub(super) struct Read {
    pub(super) tree: Node,
    /// One mapping a host, in rank order.
    pub(super) members: Vec<Node>,
    /// What decides "equal", for every host; made when it is first asked for.
    pub(super) hashes: OnceLock<Vec<HashText>>,
}

impl Inventory {
    /// Reads the inventory whole. Later sources override earlier ones key by key, hosts by name; `sets` (`launch.nproc_per_node=4`) override all.
    ///
    /// # Errors
    /// Everything that is wrong with the files, in their order.
    pub fn load(sources: &[Source], sets: &[String]) -> Result<Inventory, Vec<Problem>> {
        let mut check = Check::default();
        let inventory = read(sources, sets, &mut check).map(|read| {
            structure(&read, &mut check);
            let inventory = connection(read, &mut check);
            if let Err(problems) = inventory.job(&Known::default()) {
                check.problems.extend(problems);
            }
            inventory
        });
        check.done(inventory)
    }

    /// Reads what reaching the hosts needs; the rest may be wrong.
    ///
    /// # Errors
    /// Everything that is wrong with that part, in the order of the files.
    pub fn load_connection(sources: &[Source], sets: &[String]) -> Result<Inventory, Vec<Problem>> {
        let mut check = Check::default();
        let inventory = read(sources, sets, &mut check).map(|read| {
            hosts::keys(&read.tree, &read.members, &mut check);
            connection(read, &mut check)
        });
        check.done(inventory)
    }

    /// Keeps the hosts that a `--limit` pattern means; ranks are numbered anew in the old order.
    ///
    /// # Errors
    /// A part of the pattern means no host, or no host is left.
    pub fn limit(&mut self, pattern: &str) -> Result<(), Problem> {
        let names: Vec<String> = self.hosts.iter().map(|host| host.name.clone()).collect();
        let kept = expand::select(pattern, &names).map_err(|(says, hint)| Place::whole("--limit").problem(says, hint))?;
        let mut keep = kept.iter().copied();
        self.hosts.retain(|_| keep.next().unwrap_or(false));
        let mut keep = kept.iter().copied();
        self.read.members.retain(|_| keep.next().unwrap_or(false));
        self.read.hashes = OnceLock::new();
        Ok(())
    }
}

/// Parses and merges; `None` where nothing can be said beyond what was.
fn read(sources: &[Source], sets: &[String], check: &mut Check) -> Option<Read> {
    let mut files = Vec::new();
    let mut whole = true;
    for source in sources {
        match raw::parse(&source.name, &source.text) {
            (Some(node), problems) if matches!(node.kind, Kind::Map(_)) => {
                check.problems.extend(problems);
                files.push(node);
            }
            (Some(node), _) => {
                check.wrong(&node.place, format!("{} where the inventory's keys are expected", node.what()), "begin with `name: …`");
                whole = false;
            }
            (None, problems) => {
                check.problems.extend(problems);
                whole = false;
            }
        }
    }
    for set in sets {
        match setting(set, &files) {
            Ok(node) => files.push(node),
            Err(problems) => {
                check.problems.extend(problems);
                whole = false;
            }
        }
    }
    if !whole || files.is_empty() {
        return None;
    }
    let before = check.problems.len();
    let (tree, mut members) = hosts::merge(files, check);
    if members.is_empty() && check.problems.len() == before {
        let place = sources.last().map_or_else(|| Place::whole(SET), |source| Place::whole(&source.name));
        check.wrong(&place.inside("hosts"), "no hosts", "list them: hosts: [gpu01, gpu02]");
    }
    hosts::master_first(&tree, &mut members, check);
    Some(Read { tree, members, hashes: OnceLock::new() })
}

/// `a.b.c=value` as the file that it stands for.
fn setting(set: &str, files: &[Node]) -> Result<Node, Vec<Problem>> {
    let whole = Place::whole(SET);
    let wrong = |says: String| vec![whole.problem(says, "write it like --set launch.nproc_per_node=4")];
    let Some((key, value)) = set.split_once('=') else { return Err(wrong(format!("`{}` has no =", shorten(set)))) };
    let keys: Vec<&str> = key.trim().split('.').collect();
    if keys.iter().any(|key| key.is_empty()) {
        return Err(wrong(format!("`{}` is not a key", shorten(key))));
    }
    if keys.len() > 16 {
        return Err(wrong("a key of more than 16 parts".to_owned()));
    }
    let at = |keys: &[&str]| Place { path: keys.iter().fold(Path::file(SET), |path, key| path.key(key)), ..whole.clone() };
    let value = if value.trim().is_empty() {
        Node::scalar(at(&keys), value, false)
    } else {
        let (parsed, problems) = raw::parse(SET, value);
        let here = at(&keys).path.to_string();
        let problems: Vec<Problem> =
            problems.into_iter().map(|problem| Problem { line: 0, column: 0, path: here.clone(), ..problem }).collect();
        let Some(parsed) = parsed.filter(|_| problems.is_empty()) else { return Err(problems) };
        moved(parsed, &at(&keys))
    };
    let (value, keys) = host_setting(value, &keys, files).map_err(wrong)?;
    let full = keys.clone();
    Ok(keys.iter().enumerate().rev().fold(value, |value, (index, key)| {
        let (inner, outer) = (full.get(..=index).unwrap_or_default(), full.get(..index).unwrap_or_default());
        Node::map(at(outer), vec![Entry { key: (*key).to_owned(), place: at(inner), value }])
    }))
}

/// `hosts.gpu01.gpus=4` sets a key of one host.
fn host_setting<'k>(value: Node, keys: &[&'k str], files: &[Node]) -> Result<(Node, Vec<&'k str>), String> {
    let ["hosts", rest @ ..] = keys else { return Ok((value, keys.to_vec())) };
    if rest.is_empty() {
        return Ok((value, keys.to_vec()));
    }
    let (_, members) = hosts::merge(files.to_vec(), &mut Check::default());
    // A host's name may have dots in it: the longest one that fits is meant.
    let found = (1..rest.len()).rev().find_map(|n| {
        let (name, keys) = rest.split_at(n);
        let name = name.join(".");
        members.iter().any(|member| hosts::name(member) == name).then_some((name, keys))
    });
    let Some((name, inner)) = found else { return Err(format!("`{}` names no host and its key", shorten(&keys.join(".")))) };
    let place = value.place.clone();
    let value = inner
        .iter()
        .rev()
        .fold(value, |value, key| Node::map(place.clone(), vec![Entry { key: (*key).to_owned(), place: place.clone(), value }]));
    let named = Entry { key: "name".to_owned(), place: place.clone(), value: Node::scalar(place.clone(), name, false) };
    let host = Node::map(place.clone(), vec![named]).merge(value);
    Ok((Node { place, kind: Kind::List(vec![host]) }, vec!["hosts"]))
}

/// Gives everything in a value that came from `--set` the place of its key.
fn moved(node: Node, place: &Place) -> Node {
    let kind = match node.kind {
        Kind::List(items) => {
            let at = |i| Place { path: place.path.index(i), ..place.clone() };
            Kind::List(items.into_iter().enumerate().map(|(i, item)| moved(item, &at(i))).collect())
        }
        Kind::Map(entries) => Kind::Map(
            entries
                .into_iter()
                .map(|entry| {
                    let at = place.inside(&entry.key);
                    Entry { value: moved(entry.value, &at), place: at, key: entry.key }
                })
                .collect(),
        ),
        kind @ (Kind::Scalar { .. } | Kind::Unknown(_)) => kind,
    };
    Node { place: place.clone(), kind }
}

/// Compares every key with the known ones.
fn structure(read: &Read, check: &mut Check) {
    check.block(&read.tree, &schema::ROOT);
    hosts::keys(&read.tree, &read.members, check);
    container::keys(&read.tree, &read.members, check);
    super::lint::keys(&read.tree, check);
    super::rules::key(&read.tree, check);
    super::checks::keys(&read.tree, check);
    super::on_failure::keys(&read.tree, check);
    super::logs::keys(&read.tree, check);
    if let Some(launch) = read.tree.get("launch") {
        check.block(launch, &schema::LAUNCH);
    }
    if let Some(metrics) = read.tree.get("metrics") {
        super::metrics::metrics(metrics, check);
    }
    let Some(vars) = read.tree.get("vars") else { return };
    if !matches!(vars.kind, Kind::Map(_)) {
        check.wrong(&vars.place, format!("{} where a mapping is expected", vars.what()), "write it like { num_heads: 40 }");
    }
    const WORDS: [&str; 16] =
        ["true", "false", "none", "not", "and", "or", "in", "is", "if", "else", "True", "False", "None", "loop", "self", "range"];
    for entry in vars.entries() {
        if is_given(&entry.key) || WORDS.contains(&entry.key.as_str()) {
            check.wrong(&entry.place, format!("`{}` has a meaning of its own in templates", entry.key), "give the variable another name");
        } else if !crate::shell::is_variable(&entry.key) {
            let says = format!("`{}` cannot be used in a template", shorten(&entry.key));
            check.wrong(&entry.place, says, "letters, digits and _ only, no digit first");
        }
    }
}

/// The half that every command needs.
fn connection(read: Read, check: &mut Check) -> Inventory {
    let known = Known::default();
    let any = vec![Gpus::Any; read.members.len()];
    let facts = Facts {
        tree: &read.tree,
        members: &read.members,
        names: read.members.iter().map(hosts::name).collect(),
        fabric: vec![None; read.members.len()],
        gpus: any.iter().collect(),
        known: &known,
        nproc: None,
    };
    let scope = Scope::new(facts);
    let name = name(&scope, &read.tree, check);
    let found: Vec<Host> = (0..read.members.len()).filter_map(|index| hosts::host(&scope, index, check)).collect();
    hosts::distinct(&found, &read.members, check);
    let run_dir = match read.tree.get("run_dir") {
        Some(node) => {
            let node = hosts::early(&scope, node, 0, check);
            check.text_that(&node, valid_run_dir).unwrap_or_default()
        }
        None => RUN_DIR.to_owned(),
    };
    let engine = read.tree.get("container").filter(|node| matches!(node.kind, Kind::Map(_))).map(|container| Engine {
        host: container.get("host").and_then(|node| {
            let node = hosts::early(&scope, node, 0, check);
            container::engine_host(&node, check)
        }),
    });
    check.problems.extend(scope.problems());
    // What is wrong with them is told where the whole file is looked at.
    let metrics = read.tree.get("metrics").map(|node| super::metrics::metrics(node, &mut Check::default())).unwrap_or_default();
    Inventory { name, hosts: found, run_dir, engine, metrics, read }
}

fn name(scope: &Scope<'_>, tree: &Node, check: &mut Check) -> String {
    let Some(node) = tree.get("name") else {
        check.wrong(
            &tree.place.inside("name"),
            "`name` is missing",
            "give the run a name, like name: wan22: containers and labels carry it",
        );
        return String::new();
    };
    let node = scope.eval(node, None);
    if let Kind::Unknown(text) = &node.kind
        && !text.is_empty()
    {
        check.wrong(&node.place, format!("{text} is not known before the hosts are connected"), "write the name out, or use vars");
    }
    check.text_that(&node, names::name).unwrap_or_default()
}

fn valid_run_dir(text: &str) -> Result<(), (String, String)> {
    let home = text == "~" || text.starts_with("~/");
    let odd = text.contains(|c: char| c.is_control() || c == ':' || c == ',');
    if (!home && !text.starts_with('/')) || text == "/" || text == "~" || odd || text.split('/').any(|part| part == "..") {
        let says = format!("`{}` cannot be the run directory", shorten(text));
        return Err((says, "write a directory from / or from ~/, like ~/.orchestrate".to_owned()));
    }
    Ok(())
}

impl Inventory {
    /// The launch half, every template evaluated with what is known. A value that is not known yet prints as `<from HOST: what>`, and the
    /// constraints that need it wait.
    ///
    /// # Errors
    /// Everything that is wrong with these values, in the order of the files.
    pub fn job(&self, known: &Known) -> Result<super::Job, Vec<Problem>> {
        let mut check = Check::default();
        let job = job::job(self, known, &mut check);
        check.done(job)
    }
}
