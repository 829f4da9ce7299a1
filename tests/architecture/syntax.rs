//! One source file, as `syn` reads it: its modules, the names that it defines and imports, every path that it names, its functions.
//!
//! Seen: paths in code, in `use`, in attributes, and in the arguments of macros, where any `a::b` or single identifier counts as a path
//! (so `format!("{}", keys::NAME)` names `keys::NAME`). Not seen: text inside strings (`"{NAME}"`, `#[serde(default = "…")]`), what a
//! macro expands to, and the file in which a method is written: `app.draw()` names nothing, `App::draw` names `App`.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, Meta, UseTree, Visibility};

use crate::attributes;

/// What of a file the rules judge.
pub(crate) struct File {
    pub(crate) lines: usize,
    /// It opens with what it is for (`//!`).
    pub(crate) introduced: bool,
    /// Lines with `#[allow]`.
    pub(crate) allows: Vec<usize>,
    /// Names of the types that other files can name.
    pub(crate) types: Vec<String>,
    pub(crate) functions: Vec<Function>,
    /// The file's own module, then its inline modules.
    pub(crate) modules: Vec<Module>,
}

pub(crate) struct Function {
    /// With the modules, the type and the trait that it stands in.
    pub(crate) name: String,
    /// From `fn` to the closing brace.
    pub(crate) lines: usize,
    /// With `self`; 0 where a trait prescribes them.
    pub(crate) parameters: usize,
}

#[derive(Default)]
pub(crate) struct Module {
    /// The module around it, by index, and its name there; none for the file's own.
    pub(crate) inside: Option<(usize, String)>,
    pub(crate) items: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    /// Modules in files of their own.
    pub(crate) declared: Vec<Declared>,
    pub(crate) references: Vec<Reference>,
}

pub(crate) struct Import {
    /// `*` for a glob.
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
}

pub(crate) struct Declared {
    pub(crate) name: String,
    /// By `#[path]`.
    pub(crate) file: Option<String>,
    pub(crate) test: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In a `use` that is not passed on.
    Import,
    /// In a `pub use`: it names nothing for itself.
    Reexport,
    /// In code.
    Code,
    /// In code that merely asks about a stream, such as `io::stdout().is_terminal()`.
    Question,
}

pub(crate) struct Reference {
    /// A leading `::` is an empty first name.
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    pub(crate) test: bool,
    pub(crate) kind: Kind,
}

pub(crate) fn read(text: &str) -> syn::Result<File> {
    let parsed = syn::parse_file(text)?;
    let opening = text.lines().find(|line| !line.starts_with("#![")).unwrap_or("");
    let file = File {
        lines: text.lines().count(),
        introduced: opening.starts_with("//!"),
        allows: Vec::new(),
        types: Vec::new(),
        functions: Vec::new(),
        modules: vec![Module::default()],
    };
    let mut reader = Reader { file, at: 0, test: false, names: Vec::new(), kind: Kind::Code, in_trait: false, in_block: false };
    reader.test = attributes::is_test(&parsed.attrs);
    reader.visit_file(&parsed);
    Ok(reader.file)
}

struct Reader {
    file: File,
    /// The module that is read.
    at: usize,
    test: bool,
    /// Modules, types and functions around the place that is read.
    names: Vec<String>,
    kind: Kind,
    /// In a trait or in its implementation.
    in_trait: bool,
    /// In a function's body.
    in_block: bool,
}

impl Reader {
    fn module(&mut self) -> &mut Module {
        &mut self.file.modules[self.at]
    }

    fn refer(&mut self, path: Vec<String>, line: usize, kind: Kind) {
        let test = self.test;
        self.module().references.push(Reference { path, line, test, kind });
    }

    fn with_test(&mut self, attrs: &[Attribute], read: impl FnOnce(&mut Self)) {
        let before = self.test;
        self.test |= attributes::is_test(attrs);
        read(self);
        self.test = before;
    }

    fn named(&mut self, name: String, read: impl FnOnce(&mut Self)) {
        self.names.push(name);
        read(self);
        self.names.pop();
    }

    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let name = [self.names.as_slice(), &[signature.ident.to_string()]].concat().join("::");
        let lines = body.brace_token.span.close().end().line + 1 - signature.fn_token.span.start().line;
        let parameters = if self.in_trait { 0 } else { signature.inputs.len() };
        self.file.functions.push(Function { name, lines, parameters });
    }

    fn imports(&mut self, before: &[String], tree: &UseTree, kind: Kind) {
        let mut path = before.to_vec();
        let (name, mark) = match tree {
            UseTree::Path(inner) => {
                path.push(plain(&inner.ident));
                return self.imports(&path, &inner.tree, kind);
            }
            UseTree::Group(group) => return group.items.iter().for_each(|inner| self.imports(before, inner, kind)),
            UseTree::Glob(glob) => ("*".to_owned(), glob.star_token.span),
            UseTree::Name(inner) if inner.ident == "self" => (before.last().cloned().unwrap_or_default(), inner.ident.span()),
            UseTree::Name(inner) => {
                path.push(plain(&inner.ident));
                (plain(&inner.ident), inner.ident.span())
            }
            UseTree::Rename(inner) => {
                if inner.ident != "self" {
                    path.push(plain(&inner.ident));
                }
                (plain(&inner.rename), inner.ident.span())
            }
        };
        let line = mark.start().line;
        self.module().imports.push(Import { name, path: path.clone() });
        self.refer(path, line, kind);
    }

    /// Every `a::b::c` and every single identifier that is no method and no field.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let (mut colons, mut dots) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ':' => (colons, dots) = (colons + 1, 0),
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.finish(&mut path, line);
                        line = name.span().start().line;
                    }
                    // After `..` an expression begins, after `.` a method or a field.
                    if colons == 2 || dots != 1 {
                        path.push(plain(&name));
                    }
                    (colons, dots) = (0, 0);
                }
                other => {
                    self.finish(&mut path, line);
                    colons = 0;
                    dots = if matches!(&other, TokenTree::Punct(mark) if mark.as_char() == '.') { dots + 1 } else { 0 };
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.finish(&mut path, line);
    }

    fn finish(&mut self, path: &mut Vec<String>, line: usize) {
        if !path.is_empty() {
            let path = std::mem::take(path);
            self.refer(path, line, self.kind);
        }
    }

    fn defines(&mut self, name: &syn::Ident, visible: Option<&Visibility>) {
        if self.in_block {
            return;
        }
        self.module().items.insert(plain(name));
        if visible.is_some_and(|visible| !matches!(visible, Visibility::Inherited)) && !self.test {
            self.file.types.push(plain(name));
        }
    }

    fn inline_module(&mut self, item: &syn::ItemMod, content: &[Item]) {
        let outer = self.at;
        self.file.modules.push(Module { inside: Some((outer, plain(&item.ident))), ..Module::default() });
        self.at = self.file.modules.len() - 1;
        self.named(item.ident.to_string(), |reader| content.iter().for_each(|item| reader.visit_item(item)));
        self.at = outer;
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        self.with_test(attributes::of_item(item), |reader| {
            match item {
                Item::Const(it) => reader.defines(&it.ident, None),
                Item::Static(it) => reader.defines(&it.ident, None),
                Item::Fn(it) => reader.defines(&it.sig.ident, None),
                Item::Macro(it) => it.ident.iter().for_each(|name| reader.defines(name, None)),
                Item::Enum(it) => reader.defines(&it.ident, Some(&it.vis)),
                Item::Struct(it) => reader.defines(&it.ident, Some(&it.vis)),
                Item::Trait(it) => reader.defines(&it.ident, Some(&it.vis)),
                Item::TraitAlias(it) => reader.defines(&it.ident, Some(&it.vis)),
                Item::Type(it) => reader.defines(&it.ident, Some(&it.vis)),
                Item::Union(it) => reader.defines(&it.ident, Some(&it.vis)),
                _ => {}
            }
            visit::visit_item(reader, item);
        });
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        item.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        match &item.content {
            Some((_, content)) => self.inline_module(item, content),
            None => {
                let declared = Declared { name: plain(&item.ident), file: attributes::path(&item.attrs), test: self.test };
                self.module().declared.push(declared);
            }
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        item.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        let kind = if matches!(item.vis, Visibility::Inherited) { Kind::Import } else { Kind::Reexport };
        let start = if item.leading_colon.is_some() { vec![String::new()] } else { Vec::new() };
        self.imports(&start, &item.tree, kind);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let in_trait = std::mem::replace(&mut self.in_trait, false);
        self.function(&item.sig, &item.block);
        self.named(item.sig.ident.to_string(), |reader| visit::visit_item_fn(reader, item));
        self.in_trait = in_trait;
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let mut name = last_name(&item.self_ty);
        if let Some((path, _)) = &item.trait_ {
            let of = path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
            name = format!("<{name} as {of}>");
        }
        let before = std::mem::replace(&mut self.in_trait, item.trait_.is_some());
        self.named(name, |reader| visit::visit_item_impl(reader, item));
        self.in_trait = before;
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.named(item.ident.to_string(), |reader| visit::visit_item_trait(reader, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body);
        }
        self.named(item.sig.ident.to_string(), |reader| visit::visit_trait_item_fn(reader, item));
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attrs = match item {
            ImplItem::Const(it) => it.attrs.as_slice(),
            ImplItem::Fn(it) => &it.attrs,
            ImplItem::Type(it) => &it.attrs,
            _ => &[],
        };
        self.with_test(attrs, |reader| visit::visit_impl_item(reader, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        self.named(item.sig.ident.to_string(), |reader| visit::visit_impl_item_fn(reader, item));
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let before = std::mem::replace(&mut self.in_block, true);
        visit::visit_block(self, block);
        self.in_block = before;
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let before = self.kind;
        if call.method == "is_terminal" {
            self.kind = Kind::Question;
        }
        self.visit_expr(&call.receiver);
        self.kind = before;
        call.turbofish.iter().for_each(|types| self.visit_angle_bracketed_generic_arguments(types));
        call.args.iter().for_each(|argument| self.visit_expr(argument));
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        self.visit_expr(&call.func);
        let before = self.kind;
        if matches!(&*call.func, Expr::Path(of) if of.path.segments.last().is_some_and(|last| last.ident == "tcgetwinsize")) {
            self.kind = Kind::Question;
        }
        call.args.iter().for_each(|argument| self.visit_expr(argument));
        self.kind = before;
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("allow") {
            self.file.allows.push(attribute.pound_token.span.start().line);
        }
        visit::visit_attribute(self, attribute);
        if let Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let start = if path.leading_colon.is_some() { vec![String::new()] } else { Vec::new() };
        let names = start.into_iter().chain(path.segments.iter().map(|segment| plain(&segment.ident))).collect();
        let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
        self.refer(names, line, self.kind);
        visit::visit_path(self, path);
    }
}

fn plain(name: &syn::Ident) -> String {
    name.unraw().to_string()
}

fn last_name(of: &syn::Type) -> String {
    match of {
        syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default(),
        syn::Type::Reference(inner) => last_name(&inner.elem),
        _ => "_".to_owned(),
    }
}
