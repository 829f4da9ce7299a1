//! One source file as parsed by `syn`: its modules, the names that it defines and imports, every path that it names, its functions.
//!
//! Detected: paths in code, in `use`, in attributes, and in the arguments of macros, where any `a::b` or single identifier counts as a path
//! (so `format!("{}", keys::NAME)` names `keys::NAME`). Not detected: text inside strings (`"{NAME}"`, `#[serde(default = "…")]`), macro
//! expansions, and the file in which a method is defined: `app.draw()` names nothing, `App::draw` names `App`.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, Meta, UseTree, Visibility};

use crate::attributes;

/// The parts of a file that the rules check.
pub(crate) struct SourceFile {
    pub(crate) lines: usize,
    /// The file starts with a `//!` header.
    pub(crate) has_doc_header: bool,
    /// Lines with `#[allow]`.
    pub(crate) allow_lines: Vec<usize>,
    /// The types that other files can name.
    pub(crate) visible_types: Vec<String>,
    pub(crate) functions: Vec<FunctionInfo>,
    /// The file's own module, then its inline modules.
    pub(crate) modules: Vec<ModuleInfo>,
}

pub(crate) struct FunctionInfo {
    /// The qualified name: modules, type and trait around the function.
    pub(crate) name: String,
    /// Lines from `fn` to the closing brace.
    pub(crate) lines: usize,
    /// Parameters including `self`; 0 if a trait prescribes them.
    pub(crate) parameters: usize,
}

#[derive(Default)]
pub(crate) struct ModuleInfo {
    /// The index of the parent module and the name in it; `None` for the file's own module.
    pub(crate) parent: Option<(usize, String)>,
    pub(crate) items: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    /// Modules in files of their own.
    pub(crate) declarations: Vec<ModuleDeclaration>,
    pub(crate) references: Vec<PathReference>,
}

pub(crate) struct Import {
    /// `*` for a glob.
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
}

pub(crate) struct ModuleDeclaration {
    pub(crate) name: String,
    /// The path of `#[path]`.
    pub(crate) path_attribute: Option<String>,
    pub(crate) test_only: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReferenceKind {
    /// In a `use` that is not a re-export.
    Import,
    /// In a `pub use`, which names nothing for itself.
    Reexport,
    Code,
    /// In code that only queries a stream, such as `io::stdout().is_terminal()`.
    StreamQuery,
}

pub(crate) struct PathReference {
    /// A leading `::` is an empty first name.
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
    pub(crate) in_test: bool,
    pub(crate) kind: ReferenceKind,
}

pub(crate) fn parse_source(text: &str) -> syn::Result<SourceFile> {
    let parsed = syn::parse_file(text)?;
    let opening = text.lines().find(|line| !line.starts_with("#![")).unwrap_or("");
    let file = SourceFile {
        lines: text.lines().count(),
        has_doc_header: opening.starts_with("//!"),
        allow_lines: Vec::new(),
        visible_types: Vec::new(),
        functions: Vec::new(),
        modules: vec![ModuleInfo::default()],
    };
    let mut reader = SyntaxVisitor {
        file,
        module_index: 0,
        in_test: false,
        enclosing_names: Vec::new(),
        kind: ReferenceKind::Code,
        in_trait: false,
        in_block: false,
    };
    reader.in_test = attributes::is_test_only(&parsed.attrs);
    reader.visit_file(&parsed);
    Ok(reader.file)
}

struct SyntaxVisitor {
    file: SourceFile,
    /// The current module.
    module_index: usize,
    in_test: bool,
    /// Modules, types and functions around the current position.
    enclosing_names: Vec<String>,
    kind: ReferenceKind,
    /// In a trait or its implementation.
    in_trait: bool,
    /// In a function body.
    in_block: bool,
}

impl SyntaxVisitor {
    fn current_module(&mut self) -> &mut ModuleInfo {
        &mut self.file.modules[self.module_index]
    }

    fn add_reference(&mut self, path: Vec<String>, line: usize, kind: ReferenceKind) {
        let test = self.in_test;
        self.current_module().references.push(PathReference { path, line, in_test: test, kind });
    }

    fn with_test_scope(&mut self, attrs: &[Attribute], read: impl FnOnce(&mut Self)) {
        let before = self.in_test;
        self.in_test |= attributes::is_test_only(attrs);
        read(self);
        self.in_test = before;
    }

    fn with_enclosing_name(&mut self, name: String, read: impl FnOnce(&mut Self)) {
        self.enclosing_names.push(name);
        read(self);
        self.enclosing_names.pop();
    }

    fn record_function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let name = [self.enclosing_names.as_slice(), &[signature.ident.to_string()]].concat().join("::");
        let lines = body.brace_token.span.close().end().line + 1 - signature.fn_token.span.start().line;
        let parameters = if self.in_trait { 0 } else { signature.inputs.len() };
        self.file.functions.push(FunctionInfo { name, lines, parameters });
    }

    fn record_imports(&mut self, before: &[String], tree: &UseTree, kind: ReferenceKind) {
        let mut path = before.to_vec();
        let (name, mark) = match tree {
            UseTree::Path(inner) => {
                path.push(ident_text(&inner.ident));
                return self.record_imports(&path, &inner.tree, kind);
            }
            UseTree::Group(group) => return group.items.iter().for_each(|inner| self.record_imports(before, inner, kind)),
            UseTree::Glob(glob) => ("*".to_owned(), glob.star_token.span),
            UseTree::Name(inner) if inner.ident == "self" => (before.last().cloned().unwrap_or_default(), inner.ident.span()),
            UseTree::Name(inner) => {
                path.push(ident_text(&inner.ident));
                (ident_text(&inner.ident), inner.ident.span())
            }
            UseTree::Rename(inner) => {
                if inner.ident != "self" {
                    path.push(ident_text(&inner.ident));
                }
                (ident_text(&inner.rename), inner.ident.span())
            }
        };
        let line = mark.start().line;
        self.current_module().imports.push(Import { name, path: path.clone() });
        self.add_reference(path, line, kind);
    }

    /// Every `a::b::c` and every single identifier that is neither a method nor a field.
    fn record_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let (mut colons, mut dots) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ':' => (colons, dots) = (colons + 1, 0),
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.flush_path(&mut path, line);
                        line = name.span().start().line;
                    }
                    // After `..` an expression starts, after `.` a method or a field.
                    if colons == 2 || dots != 1 {
                        path.push(ident_text(&name));
                    }
                    (colons, dots) = (0, 0);
                }
                other => {
                    self.flush_path(&mut path, line);
                    colons = 0;
                    dots = if matches!(&other, TokenTree::Punct(mark) if mark.as_char() == '.') { dots + 1 } else { 0 };
                    if let TokenTree::Group(group) = other {
                        self.record_tokens(group.stream());
                    }
                }
            }
        }
        self.flush_path(&mut path, line);
    }

    fn flush_path(&mut self, path: &mut Vec<String>, line: usize) {
        if !path.is_empty() {
            let path = std::mem::take(path);
            self.add_reference(path, line, self.kind);
        }
    }

    fn record_item(&mut self, name: &syn::Ident, visible: Option<&Visibility>) {
        if self.in_block {
            return;
        }
        self.current_module().items.insert(ident_text(name));
        if visible.is_some_and(|visible| !matches!(visible, Visibility::Inherited)) && !self.in_test {
            self.file.visible_types.push(ident_text(name));
        }
    }

    fn enter_inline_module(&mut self, item: &syn::ItemMod, content: &[Item]) {
        let outer = self.module_index;
        self.file.modules.push(ModuleInfo { parent: Some((outer, ident_text(&item.ident))), ..ModuleInfo::default() });
        self.module_index = self.file.modules.len() - 1;
        self.with_enclosing_name(item.ident.to_string(), |reader| content.iter().for_each(|item| reader.visit_item(item)));
        self.module_index = outer;
    }
}

impl<'ast> Visit<'ast> for SyntaxVisitor {
    fn visit_item(&mut self, item: &'ast Item) {
        self.with_test_scope(attributes::item_attributes(item), |reader| {
            match item {
                Item::Const(it) => reader.record_item(&it.ident, None),
                Item::Static(it) => reader.record_item(&it.ident, None),
                Item::Fn(it) => reader.record_item(&it.sig.ident, None),
                Item::Macro(it) => it.ident.iter().for_each(|name| reader.record_item(name, None)),
                Item::Enum(it) => reader.record_item(&it.ident, Some(&it.vis)),
                Item::Struct(it) => reader.record_item(&it.ident, Some(&it.vis)),
                Item::Trait(it) => reader.record_item(&it.ident, Some(&it.vis)),
                Item::TraitAlias(it) => reader.record_item(&it.ident, Some(&it.vis)),
                Item::Type(it) => reader.record_item(&it.ident, Some(&it.vis)),
                Item::Union(it) => reader.record_item(&it.ident, Some(&it.vis)),
                _ => {}
            }
            visit::visit_item(reader, item);
        });
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        item.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        match &item.content {
            Some((_, content)) => self.enter_inline_module(item, content),
            None => {
                let declared = ModuleDeclaration {
                    name: ident_text(&item.ident),
                    path_attribute: attributes::path_attribute(&item.attrs),
                    test_only: self.in_test,
                };
                self.current_module().declarations.push(declared);
            }
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        item.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        let kind = if matches!(item.vis, Visibility::Inherited) { ReferenceKind::Import } else { ReferenceKind::Reexport };
        let start = if item.leading_colon.is_some() { vec![String::new()] } else { Vec::new() };
        self.record_imports(&start, &item.tree, kind);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let in_trait = std::mem::replace(&mut self.in_trait, false);
        self.record_function(&item.sig, &item.block);
        self.with_enclosing_name(item.sig.ident.to_string(), |reader| visit::visit_item_fn(reader, item));
        self.in_trait = in_trait;
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let mut name = type_name(&item.self_ty);
        if let Some((path, _)) = &item.trait_ {
            let of = path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
            name = format!("<{name} as {of}>");
        }
        let before = std::mem::replace(&mut self.in_trait, item.trait_.is_some());
        self.with_enclosing_name(name, |reader| visit::visit_item_impl(reader, item));
        self.in_trait = before;
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.with_enclosing_name(item.ident.to_string(), |reader| visit::visit_item_trait(reader, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.record_function(&item.sig, body);
        }
        self.with_enclosing_name(item.sig.ident.to_string(), |reader| visit::visit_trait_item_fn(reader, item));
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attrs = match item {
            ImplItem::Const(it) => it.attrs.as_slice(),
            ImplItem::Fn(it) => &it.attrs,
            ImplItem::Type(it) => &it.attrs,
            _ => &[],
        };
        self.with_test_scope(attrs, |reader| visit::visit_impl_item(reader, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.record_function(&item.sig, &item.block);
        self.with_enclosing_name(item.sig.ident.to_string(), |reader| visit::visit_impl_item_fn(reader, item));
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let before = std::mem::replace(&mut self.in_block, true);
        visit::visit_block(self, block);
        self.in_block = before;
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let before = self.kind;
        if call.method == "is_terminal" {
            self.kind = ReferenceKind::StreamQuery;
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
            self.kind = ReferenceKind::StreamQuery;
        }
        call.args.iter().for_each(|argument| self.visit_expr(argument));
        self.kind = before;
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("allow") {
            self.file.allow_lines.push(attribute.pound_token.span.start().line);
        }
        visit::visit_attribute(self, attribute);
        if let Meta::List(list) = &attribute.meta {
            self.record_tokens(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.record_tokens(call.tokens.clone());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let start = if path.leading_colon.is_some() { vec![String::new()] } else { Vec::new() };
        let names = start.into_iter().chain(path.segments.iter().map(|segment| ident_text(&segment.ident))).collect();
        let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
        self.add_reference(names, line, self.kind);
        visit::visit_path(self, path);
    }
}

fn ident_text(name: &syn::Ident) -> String {
    name.unraw().to_string()
}

fn type_name(of: &syn::Type) -> String {
    match of {
        syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default(),
        syn::Type::Reference(inner) => type_name(&inner.elem),
        _ => "_".to_owned(),
    }
}
