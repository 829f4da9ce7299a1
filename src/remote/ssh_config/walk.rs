//! Goes through the lines of all files for one host: which hold, and what is set. The first value of a keyword wins.
//!
//! Uses `line`, `condition` and `options`. Knows no files: `files` has read them. The order of events is that of OpenSSH's ssh.c: the files are
//! read with the name that was asked for, then, where a `Match final` stands, once more with the HostName that came out.

use std::net::IpAddr;
use std::sync::Arc;

use super::condition::{self, Holds, Now, speaks_of};
use super::keywords::{Keyword, Kind};
use super::line::{Source, Statement};
use super::options::{Options, Origin, Value};

/// For whom the lines are judged.
#[derive(Debug, Clone, Copy)]
pub(in crate::remote) struct Question<'a> {
    /// The name that was asked for.
    pub(in crate::remote) alias: &'a str,
    /// The user of the laptop.
    pub(in crate::remote) local_user: &'a str,
}

/// What came out.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::remote) enum Outcome {
    /// What holds for the host.
    Settled(Options),
    /// Only ssh can tell, because of what stands here.
    Ask(Origin, String),
    /// Lines that are wrong, all of them, each with its place.
    Wrong(Vec<String>),
}

/// Decides what holds for a host. `preset` stands over every file.
pub(in crate::remote) fn walk(sources: &[Arc<Source>], question: Question<'_>, preset: Options) -> Outcome {
    let mut walk =
        Walk { question, options: preset, host: question.alias.to_owned(), second: false, again: false, wrong: Vec::new(), ask: None };
    sources.iter().for_each(|s| walk.file(s, true));
    if let Err(what) = walk.settle_host() {
        walk.wrong.push(what);
    }
    walk.need_ssh_for_names();
    if walk.wrong.is_empty() && walk.ask.is_none() && walk.again {
        walk.second = true;
        walk.host = walk.options.first("HostName").unwrap_or(question.alias).to_owned();
        sources.iter().for_each(|s| walk.file(s, true));
    }
    match (walk.wrong.is_empty(), walk.ask) {
        (false, _) => Outcome::Wrong(walk.wrong),
        (true, Some((origin, what))) => Outcome::Ask(origin, what),
        (true, None) => {
            walk.options.fill();
            Outcome::Settled(walk.options)
        }
    }
}

struct Walk<'a> {
    question: Question<'a>,
    options: Options,
    /// What `Host` lines are compared with.
    host: String,
    /// Whether the files are read for the second time.
    second: bool,
    /// Whether they have to be.
    again: bool,
    wrong: Vec<String>,
    ask: Option<(Origin, String)>,
}

impl Walk<'_> {
    /// Goes through a file. `live`: whether the line that included it holds.
    fn file(&mut self, source: &Source, live: bool) {
        let mut active = live;
        for line in &source.lines {
            let place = || Origin::Line(source.name.clone(), line.number);
            match &line.says {
                Err(what) => self.wrong.push(format!("{}: {what}", place())),
                Ok(Statement::Host(patterns)) => active = live && speaks_of(patterns, &self.host),
                Ok(Statement::Match(condition)) => {
                    self.again |= condition.wants_second;
                    active = live && self.holds(condition, place);
                }
                Ok(Statement::Include(files)) => files.iter().for_each(|f| self.file(f, active)),
                Ok(Statement::IncludeByHost) if active => self.leave_to_ssh(place(), "an Include with a token"),
                Ok(Statement::IncludeByHost) => {}
                Ok(Statement::Set(keyword, values)) if active => self.set(keyword, values, place),
                Ok(Statement::Set(..)) => {}
                Ok(Statement::Unknown(keyword)) => {
                    let ignored = self.options.first("IgnoreUnknown").is_some_and(|list| speaks_of(&condition::list(list, true), keyword));
                    // Behind a line that only ssh can judge nobody knows what is ignored.
                    if !ignored && self.ask.is_none() {
                        self.wrong.push(format!("{}: there is no keyword `{keyword}`", place()));
                    }
                }
            }
        }
    }

    fn holds(&mut self, condition: &condition::Condition, place: impl Fn() -> Origin) -> bool {
        let named = self.options.first("HostName").map(|name| expand_host(name, self.question.alias));
        let host = match &named {
            Some(Ok(name)) => name,
            Some(Err(_)) | None => self.question.alias,
        };
        let user = self.options.first("User").unwrap_or(self.question.local_user);
        let now = Now { host, original: self.question.alias, user, local_user: self.question.local_user, second: self.second };
        match condition.holds(&now) {
            Holds::Yes => true,
            Holds::No => false,
            Holds::Ask(criterion) => {
                self.leave_to_ssh(place(), &format!("`Match {criterion}`"));
                false
            }
        }
    }

    fn leave_to_ssh(&mut self, place: Origin, what: &str) {
        self.ask.get_or_insert_with(|| (place, what.to_owned()));
    }

    fn set(&mut self, keyword: &'static Keyword, values: &[Arc<str>], place: impl Fn() -> Origin) {
        let taken = match keyword.name {
            // Whichever comes first keeps the other out.
            "ProxyJump" | "ProxyCommand" => self.options.named("ProxyJump") || self.options.named("ProxyCommand"),
            "RefuseConnection" => {
                let why = values.first().map_or("", |v| v);
                self.wrong.push(format!("{}: RefuseConnection: {why}", place()));
                true
            }
            _ => match keyword.kind {
                _ if values.is_empty() => true,
                Kind::Each => self.options.values_of(keyword).iter().any(|known| values.contains(&known.text)),
                _ => self.options.has(keyword),
            },
        };
        if !taken {
            let origin = place();
            let values = values.iter().map(|text| Value { text: text.clone(), origin: origin.clone() });
            self.options.entry(keyword).extend(values);
        }
    }

    /// Puts the name in place to which ssh connects: `%h` filled in, addresses in their plain form, names in lower case.
    fn settle_host(&mut self) -> Result<(), String> {
        let (name, origin) = match self.options.value("HostName") {
            Some(value) => {
                let expanded = expand_host(&value.text, self.question.alias);
                (expanded.map_err(|what| format!("{}: HostName: {what}", value.origin))?, value.origin.clone())
            }
            None => (self.question.alias.to_owned(), Origin::Default),
        };
        let name = match name.parse::<IpAddr>() {
            // An address of a kind that AddressFamily rules out stays as it is.
            Ok(address) if self.options.first("AddressFamily") == Some(if address.is_ipv4() { "inet6" } else { "inet" }) => name,
            Ok(address) => address.to_string(),
            // What has a colon is no name to OpenSSH.
            Err(_) if name.contains(':') => name,
            Err(_) => name.to_ascii_lowercase(),
        };
        self.options.preset("HostName", &name, &origin);
        Ok(())
    }

    /// Names that DNS may change are ssh's business.
    fn need_ssh_for_names(&mut self) {
        for keyword in ["CanonicalizeHostname", "CanonicalizePermittedCNAMEs"] {
            if let Some(value) = self.options.value(keyword).filter(|v| &*v.text != "no") {
                let place = value.origin.clone();
                self.leave_to_ssh(place, keyword);
            }
        }
    }
}

/// HostName takes `%h` and `%%` alone.
fn expand_host(text: &str, alias: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' => match chars.next() {
                Some('h') => out.push_str(alias),
                Some('%') => out.push('%'),
                other => return Err(format!("`{text}`: the token %{} has no meaning here", other.map(String::from).unwrap_or_default())),
            },
            c => out.push(c),
        }
    }
    Ok(out)
}
