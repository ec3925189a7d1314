/* The search of a translated site: does to a query what search.py does to the pages.
 *
 * Sphinx puts this behind its own searchtools.js. `bookSearch` holds the settings that
 * search.py writes before it, `stopwords` and `Search` are Sphinx's.
 */

const foldText = (text) =>
  text
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[\u0300-\u036f]/g, "")
    .normalize("NFC")
    .replaceAll("đ", "d");

const wordPattern = new RegExp(
  `[${bookSearch.han}]|(?:(?![${bookSearch.han}])[\\p{L}\\p{N}_])+`,
  "gu",
);
const splitWords = (text) => foldText(text).match(wordPattern) ?? [];
const splitPairs = (text) =>
  bookSearch.pair === null
    ? []
    : Array.from(
        foldText(text).matchAll(new RegExp(bookSearch.pair, "gu")),
        ([, first, second]) => first + bookSearch.joint + second,
      );

var splitQuery = (text) => [...splitWords(text), ...splitPairs(text)];

var Stemmer = function () {
  this.stemWord = (word) => {
    let stem = foldText(word);
    if (stopwords.includes(stem)) return stem;
    for (const shorten of bookSearch.endings) {
      const rule = shorten.find(([ending]) => stem.endsWith(ending));
      if (rule && [...stem].length >= rule[0].length + 3)
        stem = stem.slice(0, -rule[0].length) + rule[1];
    }
    return stem;
  };
};

const stemmer = new Stemmer();

/* All that the index has of a page with this text. */
const termsOf = (text) =>
  new Set(splitQuery(text).filter((word) => !stopwords.includes(word)).map(stemmer.stemWord));

/* The same without the characters that stand in a Chinese pair: those say less than the pair. */
const queryTerms = (text) => {
  const terms = termsOf(text);
  if (bookSearch.joint === "")
    for (const pair of splitPairs(text)) for (const half of pair) terms.delete(half);
  return terms;
};

/* Sphinx's own would highlight every half of a Chinese compound. */
Search._parseQuery = (query) => {
  const written = query.normalize("NFC").toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];
  if (SPHINX_HIGHLIGHT_ENABLED)
    localStorage.setItem("sphinx_highlight_terms", written.join(" "));
  return [query, queryTerms(query), new Set(), new Set(written), new Set(splitWords(query))];
};

/* The entries of an index that match a term: itself, or else the longer ones that hold it. */
const entries = (index, term) => {
  if (Object.hasOwn(index, term)) return [term];
  return term.length > 2 ? Object.keys(index).filter((entry) => entry.includes(term)) : [];
};

/* The best score of each term on each page. */
const scoresByPage = (terms) => {
  const scores = Search._index.docnames.map(() => new Map());
  const indexes = [
    [Search._index.terms, Scorer.term, Scorer.partialTerm],
    [Search._index.titleterms, Scorer.title, Scorer.partialTitle],
  ];
  for (const term of terms)
    for (const [index, whole, part] of indexes)
      for (const entry of entries(index, term))
        for (const page of [index[entry]].flat()) {
          const score = entry === term ? whole : part;
          scores[page].set(term, Math.max(score, scores[page].get(term) ?? 0));
        }
  return scores;
};

const result = (page, title, anchor, score) => [
  Search._index.docnames[page],
  title,
  anchor,
  null,
  score,
  Search._index.filenames[page],
];

/* Titles that have all the words, however they are accented; the pages' own come first. */
const titleResults = (terms, words) =>
  Object.entries(Search._index.alltitles).flatMap(([title, places]) => {
    const inTitle = termsOf(title);
    if (!words.every((word) => inTitle.has(word))) return [];
    const common = [...terms].filter((term) => inTitle.has(term)).length;
    const score = (Scorer.title * common) / terms.size;
    const share = common / queryTerms(title).size;
    return places.flatMap(([page, id]) => {
      const name = Search._index.titles[page]; // with its number
      if (id === null) return [result(page, name, "", score + 1 + share)];
      return share < 0.5 ? [] : [result(page, `${name} > ${title}`, `#${id}`, score * share)];
    });
  });

/* Sphinx drops words of one or two letters and looks at the best word only. Here a page needs all
 * the words (or, if no page has all, as many as any has), and all count, a pair of words too. */
Search.performTermsSearch = (terms) => {
  const words = [...terms].filter((term) => !term.includes(" "));
  const scores = scoresByPage(terms);
  const found = scores.map((page) => words.filter((word) => page.has(word)).length);
  const most = Math.max(...found);
  if (most === 0) return [];
  const pages = scores.flatMap((page, i) => {
    const score = [...page.values()].reduce((sum, value) => sum + value, 0) / terms.size;
    return found[i] === most ? [result(i, Search._index.titles[i], "", score)] : [];
  });
  return [...titleResults(terms, words), ...pages];
};

/* Sphinx's summary starts where a term stands; tell it how the page writes the term. */
const makeSummary = Search.makeSearchSummary;
Search.makeSearchSummary = (html, terms, anchor) => {
  const text = Search.htmlToText(html, anchor);
  let folded = "";
  const origin = []; // of each character of `folded`, its place in `text`
  let place = 0;
  for (const character of text) {
    const piece = foldText(character);
    folded += piece;
    for (let i = 0; i < piece.length; i++) origin.push(place);
    place += character.length;
  }
  const written = [...terms].flatMap((term) => {
    const start = folded.indexOf(term);
    return start < 0 ? [] : [text.slice(origin[start], origin[start + term.length - 1] + 1)];
  });
  return makeSummary(html, written, anchor);
};
