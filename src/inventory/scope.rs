//! The names that templates and constraints may use, each found when it is first asked for: vars may refer to each other in any order.
//!
//! Uses templates and the tree. Knows what is given and what has to come from a host; knows nothing of the keys that templates stand in.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use minijinja::{Environment, Value};

use super::check::Check;
use super::schema::nearest;
use super::template::{self, Piece, Term};
use super::tree::{Entry, Kind, Node, Place, shorten};
use super::{Gpus, Known};

/// The most names that may refer to each other in a row.
const CHAIN_LIMIT: usize = 32;
/// The default of `launch.master_port`.
pub(super) const MASTER_PORT: u16 = 29500;
/// The most worker processes a host.
pub(super) const NPROC_LIMIT: u32 = 1024;

const RUN: [&str; 2] = ["id", "stamp"];
const MASTER: [&str; 3] = ["name", "address", "port"];
const HOST: [&str; 3] = ["name", "address", "rank"];
const GIVEN: [&str; 7] = ["name", "run", "world_size", "nnodes", "nproc_per_node", "master", "host"];

/// Whether a name of `vars` would hide one that is given.
pub(super) fn is_given(name: &str) -> bool {
    GIVEN.contains(&name)
}

/// What the names are made of.
#[derive(Clone)]
pub(super) struct Facts<'a> {
    /// The merged file.
    pub(super) tree: &'a Node,
    /// Each host's own mapping, in rank order.
    pub(super) members: &'a [Node],
    pub(super) names: Vec<&'a str>,
    pub(super) fabric: Vec<Option<&'a str>>,
    pub(super) gpus: Vec<&'a Gpus>,
    pub(super) known: &'a Known,
    /// Tries a number of worker processes other than the one given.
    pub(super) nproc: Option<u32>,
}

/// How many worker processes a host.
enum Nproc {
    Known(u32),
    /// Not as many on all hosts, which this launcher takes.
    Each(Vec<u32>),
    Unknown(String),
    Wrong,
}

/// Evaluates with these facts; problems gather in it, each once.
pub(super) struct Scope<'a> {
    facts: Facts<'a>,
    environment: Environment<'static>,
    found: RefCell<BTreeMap<String, Option<Term>>>,
    chain: Cell<usize>,
    check: RefCell<Check>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(facts: Facts<'a>) -> Self {
        let environment = template::environment();
        Scope { facts, environment, found: RefCell::default(), chain: Cell::new(0), check: RefCell::default() }
    }

    /// Everything that was wrong with the templates so far.
    pub(super) fn problems(&self) -> Vec<super::Problem> {
        std::mem::take(&mut self.check.borrow_mut().problems)
    }

    pub(super) fn facts(&self) -> &Facts<'a> {
        &self.facts
    }

    fn wrong(&self, place: &Place, says: impl Into<String>, hint: impl Into<String>) -> Term {
        self.check.borrow_mut().wrong(place, says, hint);
        Term::Wrong
    }

    /// The value with every template in it evaluated. `host`: whose value it is, where one host's values are asked for.
    pub(super) fn eval(&self, node: &Node, host: Option<usize>) -> Node {
        let kind = match &node.kind {
            Kind::List(items) => Kind::List(items.iter().map(|item| self.eval(item, host)).collect()),
            Kind::Map(entries) => Kind::Map(
                entries.iter().map(|e| Entry { key: e.key.clone(), place: e.place.clone(), value: self.eval(&e.value, host) }).collect(),
            ),
            Kind::Unknown(text) => Kind::Unknown(text.clone()),
            Kind::Scalar { text, .. } => match template::pieces(text) {
                Ok(None) => return node.clone(),
                Ok(Some(pieces)) => return self.scalar(&pieces, &node.place, host),
                Err(says) => {
                    self.wrong(&node.place, says, "a plain {{ is written {{ '{{' }}");
                    Kind::Unknown(String::new())
                }
            },
        };
        Node { place: node.place.clone(), kind }
    }

    fn scalar(&self, pieces: &[Piece], place: &Place, host: Option<usize>) -> Node {
        let unknown = |text: String| Node { place: place.clone(), kind: Kind::Unknown(text) };
        if let [Piece::Expression(expression)] = pieces {
            return match self.expression(expression, place, host) {
                Term::Known(value) => template::node(&value, place).unwrap_or_else(|why| {
                    self.wrong(place, format!("{{{{ {} }}}}: {why}", shorten(expression)), "");
                    unknown(String::new())
                }),
                Term::Unknown(text) => unknown(text),
                Term::Wrong => unknown(String::new()),
            };
        }
        let mut text = String::new();
        let mut all_known = true;
        for piece in pieces {
            let (part, known) = self.part(piece, place, host);
            text.push_str(&part);
            all_known &= known;
        }
        if text.len() > super::raw::TEXT_LIMIT {
            self.wrong(place, "the template gives more than 1 MiB", "");
            return unknown(String::new());
        }
        if all_known { Node::scalar(place.clone(), text, false) } else { unknown(text) }
    }

    /// A piece of a text, and whether it is known.
    pub(super) fn part(&self, piece: &Piece, place: &Place, host: Option<usize>) -> (String, bool) {
        let expression = match piece {
            Piece::Text(text) => return (text.clone(), true),
            Piece::Expression(expression) => expression,
        };
        match self.expression(expression, place, host) {
            Term::Known(value) => match template::text(&value) {
                Ok(text) => (text, true),
                Err(why) => {
                    self.wrong(place, format!("{{{{ {} }}}}: {why}", shorten(expression)), "");
                    (String::new(), false)
                }
            },
            Term::Unknown(text) => (text, false),
            Term::Wrong => (String::new(), false),
        }
    }

    /// What an expression comes to.
    pub(super) fn expression(&self, expression: &str, place: &Place, host: Option<usize>) -> Term {
        let shown = shorten(expression);
        if expression.len() > template::EXPRESSION_LIMIT {
            let says = format!("an expression of more than {} bytes", template::EXPRESSION_LIMIT);
            return self.wrong(place, says, "divide it among several vars");
        }
        let compiled = match self.environment.compile_expression(expression) {
            Ok(compiled) => compiled,
            Err(error) => {
                let hint = "write an expression like world_size // 2; a plain {{ is written {{ '{{' }}";
                return self.wrong(place, format!("`{shown}` is not an expression: {}", template::explain(&error)), hint);
            }
        };
        let mut context = BTreeMap::new();
        let mut unknown = None;
        for (name, fields) in asked(&compiled.undeclared_variables(true)) {
            if self.environment.globals().any(|(global, _)| global == name) && !self.is_var(&name) {
                continue;
            }
            match self.name(&name, &fields, place, host) {
                Term::Known(value) => {
                    context.insert(name, value);
                }
                Term::Unknown(text) => unknown = unknown.or(Some(text)),
                Term::Wrong => return Term::Wrong,
            }
        }
        if let Some(text) = unknown {
            return Term::Unknown(text);
        }
        match compiled.eval(Value::from(context)) {
            Ok(value) if value.is_undefined() => self.wrong(place, format!("`{shown}` is not defined"), ""),
            Ok(value) => Term::Known(value),
            Err(error) => self.wrong(place, format!("`{shown}` cannot be evaluated: {}", template::explain(&error)), ""),
        }
    }

    /// Evaluates a variable for what may be wrong with it.
    pub(super) fn touch(&self, name: &str, place: &Place) {
        drop(self.var(name, place));
    }

    fn is_var(&self, name: &str) -> bool {
        self.facts.tree.find(&["vars"]).is_some_and(|vars| vars.entries().iter().any(|entry| entry.key == name))
    }

    /// One name; of a given group only the fields that are asked for.
    fn name(&self, name: &str, fields: &BTreeSet<String>, place: &Place, host: Option<usize>) -> Term {
        let all: &[&str] = match name {
            "run" => &RUN,
            "master" => &MASTER,
            "host" => &HOST,
            _ => return self.single(name, place),
        };
        if name == "host" && host.is_none() {
            return self.wrong(place, "`host` is not known here", "only command, env, mounts and the values of one host know their host");
        }
        let fields: Vec<&str> = if fields.is_empty() { all.to_vec() } else { fields.iter().map(String::as_str).collect() };
        let mut group = BTreeMap::new();
        for field in fields {
            if !all.contains(&field) {
                let hint = format!("there are {}", all.iter().map(|f| format!("{name}.{f}")).collect::<Vec<_>>().join(", "));
                return self.wrong(place, format!("`{name}.{field}` is not defined"), hint);
            }
            match self.field(name, field, host.unwrap_or(0), place) {
                Term::Known(value) => group.insert(field.to_owned(), value),
                other => return other,
            };
        }
        Term::Known(Value::from(group))
    }

    fn field(&self, group: &str, field: &str, host: usize, place: &Place) -> Term {
        let host = if group == "master" { 0 } else { host };
        let unknown_run =
            |text: &str| if text.is_empty() { Term::Unknown(format!("<run.{field}>")) } else { Term::Known(Value::from(text)) };
        match (group, field) {
            ("run", "id") => unknown_run(&self.facts.known.run_id),
            ("run", _) => unknown_run(&self.facts.known.run_stamp),
            (_, "rank") => Term::Known(Value::from(host)),
            (_, "port") => self.once("master.port", place, |scope| scope.master_port()),
            (_, "address") => {
                let known = self.facts.known.addresses.get(host).and_then(Option::as_deref);
                match known.or_else(|| self.facts.fabric.get(host).copied().flatten()) {
                    Some(address) => Term::Known(Value::from(address)),
                    None => Term::Unknown(self.comes_from(host, "fabric address")),
                }
            }
            _ => Term::Known(Value::from(self.host_name(host))),
        }
    }

    fn host_name(&self, host: usize) -> &str {
        self.facts.names.get(host).copied().unwrap_or_default()
    }

    fn comes_from(&self, host: usize, what: &str) -> String {
        format!("<from {}: {what}>", self.host_name(host))
    }

    fn single(&self, name: &str, place: &Place) -> Term {
        match name {
            "nnodes" => Term::Known(Value::from(self.facts.names.len())),
            "nproc_per_node" | "world_size" | "name" => self.once(name, place, |scope| match name {
                "name" => scope.own_name(),
                "world_size" => scope.world_size(),
                _ => scope.nproc_term(place),
            }),
            _ => self.var(name, place),
        }
    }

    fn var(&self, name: &str, place: &Place) -> Term {
        let vars = self.facts.tree.find(&["vars"]).map(Node::entries).unwrap_or_default();
        let Some(entry) = vars.iter().find(|entry| entry.key == name) else {
            let names = vars.iter().map(|entry| entry.key.as_str()).chain(GIVEN);
            let hint = match nearest(name, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!(
                    "set it under vars; given are {}, run.id, run.stamp, master.name, master.address, master.port",
                    GIVEN[..5].join(", ")
                ),
            };
            return self.wrong(place, format!("`{}` is not defined", shorten(name)), hint);
        };
        self.once(name, place, |scope| {
            let node = scope.eval(&entry.value, None);
            match template::value(&node) {
                Ok(value) => Term::Known(value),
                Err(text) if text.is_empty() => Term::Wrong,
                Err(text) => Term::Unknown(text),
            }
        })
    }

    /// Finds a name's value once; a name that needs itself is wrong.
    fn once(&self, name: &str, place: &Place, find: impl FnOnce(&Self) -> Term) -> Term {
        match self.found.borrow().get(name) {
            Some(Some(term)) => return term.clone(),
            Some(None) => {
                let circle =
                    self.found.borrow().iter().filter(|(_, term)| term.is_none()).map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>();
                return self.wrong(
                    place,
                    format!("`{name}` needs its own value: {} go in a circle", circle.join(", ")),
                    "give one of them a fixed value",
                );
            }
            None => {}
        }
        if self.chain.get() >= CHAIN_LIMIT {
            return self.wrong(place, format!("more than {CHAIN_LIMIT} names refer to each other in a row"), "");
        }
        self.found.borrow_mut().insert(name.to_owned(), None);
        self.chain.set(self.chain.get() + 1);
        let term = find(self);
        self.chain.set(self.chain.get() - 1);
        self.found.borrow_mut().insert(name.to_owned(), Some(term.clone()));
        term
    }

    fn own_name(&self) -> Term {
        match self.facts.tree.get("name").map(|node| self.eval(node, None).kind) {
            Some(Kind::Scalar { text, .. }) => Term::Known(Value::from(text)),
            _ => Term::Wrong,
        }
    }

    fn master_port(&self) -> Term {
        let Some(node) = self.facts.tree.find(&["launch", "master_port"]) else { return Term::Known(Value::from(MASTER_PORT)) };
        let node = self.eval(node, None);
        if matches!(&node.kind, Kind::Scalar { text, .. } if text == "auto") {
            return match self.facts.known.master_port {
                Some(port) => Term::Known(Value::from(port)),
                None => Term::Unknown(self.comes_from(0, "free port")),
            };
        }
        match (&node.kind, Check::default().port(&node)) {
            (_, Some(port)) => Term::Known(Value::from(port)),
            (Kind::Unknown(text), _) if !text.is_empty() => Term::Unknown(text.clone()),
            _ => Term::Wrong,
        }
    }

    /// `launch.with` as it is written.
    pub(super) fn with(&self) -> String {
        match self.facts.tree.find(&["launch", "with"]).map(|node| self.eval(node, None).kind) {
            Some(Kind::Scalar { text, .. }) => text,
            _ => "torchrun".to_owned(),
        }
    }

    /// Whether every rank's process is started by one script a host.
    pub(super) fn is_script(&self) -> bool {
        self.with() == "script"
    }

    fn world_size(&self) -> Term {
        let nodes = self.facts.names.len();
        if self.is_script() {
            return Term::Known(Value::from(nodes));
        }
        match self.nproc() {
            Nproc::Known(nproc) => Term::Known(Value::from(u64::from(nproc) * nodes as u64)),
            Nproc::Each(all) => Term::Known(Value::from(all.into_iter().map(u64::from).sum::<u64>())),
            Nproc::Unknown(text) => Term::Unknown(text),
            Nproc::Wrong => Term::Wrong,
        }
    }

    fn nproc_term(&self, place: &Place) -> Term {
        match self.nproc() {
            Nproc::Known(nproc) => Term::Known(Value::from(nproc)),
            Nproc::Each(all) => {
                let all = all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                let hint = "use world_size, or $ORCH_GPUS_PER_NODE in a script; or set launch.nproc_per_node";
                self.wrong(place, format!("`nproc_per_node` is not the same on all hosts: {all}"), hint)
            }
            Nproc::Unknown(text) => Term::Unknown(text),
            Nproc::Wrong => Term::Wrong,
        }
    }

    /// Worker processes a host, where they are known.
    pub(super) fn nproc_per_node(&self) -> Option<u32> {
        let place = self.facts.tree.find(&["launch", "nproc_per_node"]).map_or(&self.facts.tree.place, |node| &node.place);
        if self.unequal().is_some() {
            return None;
        }
        match self.once("nproc_per_node", place, |scope| scope.nproc_term(place)) {
            Term::Known(value) => u32::try_from(value).ok(),
            Term::Unknown(_) | Term::Wrong => None,
        }
    }

    /// Worker processes of one host, where they are known.
    pub(super) fn nproc_of(&self, host: usize) -> Option<u32> {
        match self.unequal() {
            Some(all) => all.get(host).copied(),
            None => self.nproc_per_node(),
        }
    }

    /// The GPUs given to each host, where nobody gave a number, they differ, and the launcher takes that.
    fn unequal(&self) -> Option<Vec<u32>> {
        if self.facts.nproc.is_some() || self.facts.tree.find(&["launch", "nproc_per_node"]).is_some() || !self.takes_unequal() {
            return None;
        }
        let all: Vec<u32> = (0..self.facts.names.len()).map(|host| self.given(host).filter(|gpus| *gpus > 0)).collect::<Option<_>>()?;
        all.iter().any(|gpus| Some(gpus) != all.first()).then_some(all)
    }

    /// Whether the launcher tells each host its own number. torchrun's hosts are documented to be alike, and accelerate divides the total
    /// by the hosts (accelerate/utils/launch.py); a hostfile has a number a line.
    fn takes_unequal(&self) -> bool {
        let rendezvous = self.facts.tree.find(&["launch", "rendezvous"]).map(|node| self.eval(node, None).kind);
        match self.with().as_str() {
            "processes" | "script" => true,
            "deepspeed" => matches!(rendezvous, Some(Kind::Scalar { text, .. }) if text == "hostfile"),
            _ => false,
        }
    }

    fn nproc(&self) -> Nproc {
        if let Some(trial) = self.facts.nproc {
            return Nproc::Known(trial);
        }
        let Some(node) = self.facts.tree.find(&["launch", "nproc_per_node"]) else { return self.default_nproc() };
        let node = self.eval(node, None);
        let number = self.check.borrow_mut().number(&node, 1, NPROC_LIMIT);
        match (&node.kind, number) {
            (_, Some(number)) => Nproc::Known(number),
            (Kind::Unknown(text), None) if !text.is_empty() => Nproc::Unknown(text.clone()),
            _ => Nproc::Wrong,
        }
    }

    /// The GPUs given to each host, which must be as many on all where the launcher knows one number only.
    fn default_nproc(&self) -> Nproc {
        if let Some(all) = self.unequal() {
            return Nproc::Each(all);
        }
        let place = self.facts.tree.get("launch").unwrap_or(self.facts.tree).place.inside("nproc_per_node");
        let mut all = Vec::new();
        for host in 0..self.facts.names.len() {
            match self.given(host) {
                Some(gpus) => all.push(gpus),
                None => return Nproc::Unknown(self.comes_from(host, "GPU count")),
            }
        }
        let least = all.iter().copied().min().unwrap_or(0);
        if let Some(other) = all.iter().position(|gpus| *gpus != all.first().copied().unwrap_or(0)) {
            let (first, name) = (self.host_name(0), self.host_name(other));
            let says = format!(
                "{first} gives {} GPUs and {name} gives {}, and `with: {}` has one number for all: there is no default",
                all.first().unwrap_or(&0),
                all.get(other).unwrap_or(&0),
                self.with()
            );
            self.wrong(&place, says, format!("set launch.nproc_per_node, at most {least}, or make the hosts' gpus equal"));
            return Nproc::Wrong;
        }
        if least == 0 {
            self.wrong(&place, "no GPU is given to the hosts: there is no default", "set launch.nproc_per_node");
            return Nproc::Wrong;
        }
        Nproc::Known(least)
    }

    /// GPUs given to a host: by its container, by its `gpus`, or by what it has.
    pub(super) fn given(&self, host: usize) -> Option<u32> {
        let own = self.facts.members.get(host).and_then(|member| member.find(&["container", "gpus"]));
        let node = own.or_else(|| self.facts.tree.find(&["container", "gpus"])).map(|node| self.eval(node, Some(host)));
        match node.as_ref().map(|node| &node.kind) {
            Some(Kind::List(items)) => return u32::try_from(items.len()).ok(),
            Some(Kind::Scalar { text, .. }) if text == "none" => return Some(0),
            Some(Kind::Scalar { text, plain: true }) if text != "all" => return super::raw::plain(text),
            _ => {}
        }
        match self.facts.gpus.get(host) {
            Some(Gpus::Count(count)) => Some(*count),
            Some(Gpus::List(list)) => u32::try_from(list.len()).ok(),
            Some(Gpus::Any) | None => self.facts.known.gpus.get(host).copied().flatten(),
        }
    }
}

/// Names and the fields asked of them: `master.name` is `master` with `name`; `master` alone is all of it.
fn asked(undeclared: &std::collections::HashSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for full in undeclared {
        let (name, field) = full.split_once('.').map_or((full.as_str(), None), |(name, tail)| (name, tail.split('.').next()));
        names.entry(name.to_owned()).or_default().extend(field.map(str::to_owned));
    }
    for full in undeclared.iter().filter(|full| !full.contains('.')) {
        names.insert(full.clone(), BTreeSet::new());
    }
    names
}
