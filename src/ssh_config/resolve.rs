//! Goes through the lines of all files for one host: which hold, and what is set. The first value of a keyword wins.
//!
//! The order of events is that of OpenSSH's ssh.c: the files are read with the name that was asked for, then, where a `Match final` stands,
//! once more with the HostName that came out.

use std::net::IpAddr;
use std::sync::Arc;

use super::config_line::{SshConfigFile, SshConfigStatement};
use super::keywords::{KeywordValueKind, SshKeyword};
use super::match_condition::{self, MatchConditionResult, MatchContext, patterns_match};
use super::options::{SettingOrigin, SshOptionValue, SshOptions};
use super::tokens::expand_tokens;

/// The host and user for which the lines are evaluated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostQuery<'a> {
    /// The name that was asked for.
    pub(crate) alias: &'a str,
    /// The user of the laptop.
    pub(crate) local_user: &'a str,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MatchResult {
    /// What holds for the host.
    Resolved(SshOptions),
    /// Only ssh can resolve it, because of this line.
    NeedsSsh(SettingOrigin, String),
    /// Lines that are wrong, all of them, each with its place.
    Invalid(Vec<String>),
}

/// Decides what holds for a host. `preset` stands over every file.
pub(crate) fn resolve_host(sources: &[Arc<SshConfigFile>], query: HostQuery<'_>, preset: SshOptions) -> MatchResult {
    let mut walk = HostResolver {
        query,
        options: preset,
        current_host: query.alias.to_owned(),
        is_final_pass: false,
        needs_final_pass: false,
        errors: Vec::new(),
        needs_ssh: None,
    };
    sources.iter().for_each(|s| walk.apply_file(s, true));
    if let Err(what) = walk.normalize_host_name() {
        walk.errors.push(what);
    }
    walk.defer_canonicalization();
    if walk.errors.is_empty() && walk.needs_ssh.is_none() && walk.needs_final_pass {
        walk.is_final_pass = true;
        walk.current_host = walk.options.first_text("HostName").unwrap_or(query.alias).to_owned();
        sources.iter().for_each(|s| walk.apply_file(s, true));
    }
    match (walk.errors.is_empty(), walk.needs_ssh) {
        (false, _) => MatchResult::Invalid(walk.errors),
        (true, Some((origin, what))) => MatchResult::NeedsSsh(origin, what),
        (true, None) => {
            walk.options.fill_defaults();
            MatchResult::Resolved(walk.options)
        }
    }
}

struct HostResolver<'a> {
    query: HostQuery<'a>,
    options: SshOptions,
    /// What `Host` lines are compared with.
    current_host: String,
    /// Whether the files are read for the second time.
    is_final_pass: bool,
    /// Whether they have to be.
    needs_final_pass: bool,
    errors: Vec<String>,
    needs_ssh: Option<(SettingOrigin, String)>,
}

impl HostResolver<'_> {
    /// Goes through a file. `live`: whether the line that included it holds.
    fn apply_file(&mut self, source: &SshConfigFile, live: bool) {
        let mut active = live;
        for line in &source.lines {
            let place = || SettingOrigin::Line(source.name.clone(), line.number);
            match &line.statement {
                Err(what) => self.errors.push(format!("{}: {what}", place())),
                Ok(SshConfigStatement::Host(patterns)) => active = live && patterns_match(patterns, &self.current_host),
                Ok(SshConfigStatement::Match(condition)) => {
                    self.needs_final_pass |= condition.needs_final_pass;
                    active = live && self.evaluate_match(condition, place);
                }
                Ok(SshConfigStatement::Include(files)) => files.iter().for_each(|f| self.apply_file(f, active)),
                Ok(SshConfigStatement::IncludeWithTokens) if active => self.defer_to_ssh(place(), "an Include with a token"),
                Ok(SshConfigStatement::IncludeWithTokens) => {}
                Ok(SshConfigStatement::Set(keyword, values)) if active => self.set_option(keyword, values, place),
                Ok(SshConfigStatement::Set(..)) => {}
                Ok(SshConfigStatement::Unknown(keyword)) => {
                    let ignored = self
                        .options
                        .first_text("IgnoreUnknown")
                        .is_some_and(|list| patterns_match(&match_condition::parse_pattern_list(list, true), keyword));
                    // After a line that only ssh can evaluate, the ignored keywords are unknown.
                    if !ignored && self.needs_ssh.is_none() {
                        self.errors.push(format!("{}: unknown keyword `{keyword}`", place()));
                    }
                }
            }
        }
    }

    fn evaluate_match(&mut self, condition: &match_condition::MatchCondition, origin: impl Fn() -> SettingOrigin) -> bool {
        let named = self.options.first_text("HostName").map(|name| expand_host_name(name, self.query.alias));
        let host = match &named {
            Some(Ok(name)) => name,
            Some(Err(_)) | None => self.query.alias,
        };
        let user = self.options.first_text("User").unwrap_or(self.query.local_user);
        let now = MatchContext {
            host,
            original_host: self.query.alias,
            user,
            local_user: self.query.local_user,
            is_final_pass: self.is_final_pass,
        };
        match condition.evaluate(&now) {
            MatchConditionResult::Yes => true,
            MatchConditionResult::No => false,
            MatchConditionResult::NeedsSsh(criterion) => {
                self.defer_to_ssh(origin(), &format!("`Match {criterion}`"));
                false
            }
        }
    }

    fn defer_to_ssh(&mut self, origin: SettingOrigin, what: &str) {
        self.needs_ssh.get_or_insert_with(|| (origin, what.to_owned()));
    }

    fn set_option(&mut self, keyword: &'static SshKeyword, values: &[Arc<str>], place: impl Fn() -> SettingOrigin) {
        let taken = match keyword.name {
            // Whichever comes first keeps the other out.
            "ProxyJump" | "ProxyCommand" => self.options.is_set("ProxyJump") || self.options.is_set("ProxyCommand"),
            "RefuseConnection" => {
                let why = values.first().map_or("", |v| v);
                self.errors.push(format!("{}: RefuseConnection: {why}", place()));
                true
            }
            _ => match keyword.value_kind {
                _ if values.is_empty() => true,
                KeywordValueKind::Repeated => self.options.all_values(keyword.name).iter().any(|known| values.contains(&known.text)),
                _ => self.options.is_set(keyword.name),
            },
        };
        if !taken {
            let origin = place();
            let values = values.iter().map(|text| SshOptionValue { text: text.clone(), origin: origin.clone() });
            self.options.values_mut(keyword).extend(values);
        }
    }

    /// Puts the name in place to which ssh connects: `%h` filled in, addresses in their plain form, names in lower case.
    fn normalize_host_name(&mut self) -> Result<(), String> {
        let (name, origin) = match self.options.first_value("HostName") {
            Some(value) => {
                let expanded = expand_host_name(&value.text, self.query.alias);
                (expanded.map_err(|what| format!("{}: HostName: {what}", value.origin))?, value.origin.clone())
            }
            None => (self.query.alias.to_owned(), SettingOrigin::Default),
        };
        let name = match name.parse::<IpAddr>() {
            // An address of a kind that AddressFamily rules out stays as it is.
            Ok(address) if self.options.first_text("AddressFamily") == Some(if address.is_ipv4() { "inet6" } else { "inet" }) => name,
            Ok(address) => address.to_string(),
            // What has a colon is no name to OpenSSH.
            Err(_) if name.contains(':') => name,
            Err(_) => name.to_ascii_lowercase(),
        };
        self.options.set("HostName", &name, &origin);
        Ok(())
    }

    /// Names that DNS may change are ssh's business.
    fn defer_canonicalization(&mut self) {
        for keyword in ["CanonicalizeHostname", "CanonicalizePermittedCNAMEs"] {
            if let Some(value) = self.options.first_value(keyword).filter(|v| &*v.text != "no") {
                let place = value.origin.clone();
                self.defer_to_ssh(place, keyword);
            }
        }
    }
}

/// HostName takes `%h` and `%%` alone.
fn expand_host_name(text: &str, alias: &str) -> Result<String, String> {
    expand_tokens(text, |token| (token == 'h').then(|| alias.to_owned()), None)
}
