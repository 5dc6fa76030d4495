package feeds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"html"
	"net/url"
	"strconv"
	"strings"
	"time"

	"standmeet/workers/internal/egress"
)

// base is where a board's API is, and who asks there.
func (r *Reader) base(kind, usual string) (string, *egress.Client) {
	if other := r.Bases[kind]; other != "" {
		if r.Boards != nil {
			return other, r.Boards
		}
		return other, r.Client
	}
	return usual, r.Client
}

// ask reads a board's JSON.
func ask[T any](ctx context.Context, r *Reader, client *egress.Client, address string, last *Source) (out T, p reply, err error) {
	p, err = r.get(ctx, client, address, "application/json", last)
	if err != nil || p.unchanged {
		return out, p, err
	}
	if p.isHTML() {
		return out, p, broken("The source answered with a web page where a list of jobs was expected.")
	}
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(p.body, []byte("\xef\xbb\xbf"))))
	if err := d.Decode(&out); err != nil {
		return out, p, &Fault{Reason: "The source answered with something that is no list of jobs.", Err: err}
	}
	return out, p, nil
}

func answer(p reply, listings []Listing) Answer {
	return Answer{Unchanged: p.unchanged, Listings: listings, ETag: p.etag, LastModified: p.lastModified}
}

// text is a field that may be a string, a number, null or absent.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	switch {
	case len(b) > 0 && b[0] == '"':
		var s string
		err := json.Unmarshal(b, &s)
		*t = text(s)
		return err
	case len(b) > 0 && (b[0] == '-' || b[0] >= '0' && b[0] <= '9'):
		*t = text(b)
	default: // null, and what nobody can read
		*t = ""
	}
	return nil
}

// place is a location that may be an object, a string or null.
type place struct{ name string }

func (p *place) UnmarshalJSON(b []byte) error {
	var t text
	if len(b) > 0 && b[0] == '{' {
		var o struct {
			Name text `json:"name"`
		}
		err := json.Unmarshal(b, &o)
		p.name = string(o.Name)
		return err
	}
	err := t.UnmarshalJSON(b)
	p.name = string(t)
	return err
}

// The Greenhouse Job Board API: developers.greenhouse.io/job-board.html. content
// is HTML that is escaped once more.
func (r *Reader) greenhouse(ctx context.Context, s Source) (Answer, error) {
	base, client := r.base(Greenhouse, "https://boards-api.greenhouse.io")
	out, p, err := ask[struct {
		Jobs *[]struct {
			ID             text  `json:"id"`
			Title          text  `json:"title"`
			AbsoluteURL    text  `json:"absolute_url"`
			CompanyName    text  `json:"company_name"`
			FirstPublished text  `json:"first_published"`
			UpdatedAt      text  `json:"updated_at"`
			Location       place `json:"location"`
			Content        text  `json:"content"`
		} `json:"jobs"`
	}](ctx, r, client, base+"/v1/boards/"+url.PathEscape(s.Board)+"/jobs?content=true", &s)
	if err != nil || p.unchanged {
		return answer(p, nil), err
	}
	if out.Jobs == nil {
		return Answer{}, noList()
	}
	var all []Listing
	for _, j := range *out.Jobs {
		all = append(all, Listing{
			ID: string(j.ID), URL: link(p.url, string(j.AbsoluteURL)), Title: line(string(j.Title)), Company: line(string(j.CompanyName)), Location: line(j.Location.name),
			Description: plain(html.UnescapeString(string(j.Content))), PublishedAt: moment(string(j.FirstPublished), string(j.UpdatedAt)),
		})
	}
	return answer(p, all), nil
}

func noList() *Fault { return broken("The source answered with something that is no list of jobs.") }

// The Lever Postings API: github.com/lever/postings-api. Companies of the EU
// instance are not known to the other, which answers 404. Times are
// milliseconds.
func (r *Reader) lever(ctx context.Context, s Source, tell func(int, int)) (Answer, error) {
	base, client := r.base(Lever, "https://api.lever.co")
	a, err := r.leverAt(ctx, client, base, s, tell)
	var f *Fault
	if errors.As(err, &f) && strings.Contains(f.Reason, " 404 ") && r.Bases[Lever] == "" {
		return r.leverAt(ctx, client, "https://api.eu.lever.co", s, tell)
	}
	return a, err
}

func (r *Reader) leverAt(ctx context.Context, client *egress.Client, base string, s Source, tell func(int, int)) (Answer, error) {
	const page = 100
	type posting struct {
		ID         text `json:"id"`
		Text       text `json:"text"`
		HostedURL  text `json:"hostedUrl"`
		CreatedAt  text `json:"createdAt"`
		Categories struct {
			Location text `json:"location"`
		} `json:"categories"`
		DescriptionPlain text `json:"descriptionPlain"`
		Description      text `json:"description"`
		AdditionalPlain  text `json:"additionalPlain"`
		Lists            []struct {
			Text    text `json:"text"`
			Content text `json:"content"`
		} `json:"lists"`
	}
	var all []Listing
	seen := map[string]bool{}
	for n := range maxPages {
		out, p, err := ask[*[]posting](ctx, r, client, base+"/v0/postings/"+url.PathEscape(s.Board)+"?mode=json&limit="+strconv.Itoa(page)+"&skip="+strconv.Itoa(n*page), nil)
		if err != nil {
			return Answer{}, err
		}
		if out == nil {
			return Answer{}, noList()
		}
		fresh := 0
		for _, j := range *out {
			if seen[string(j.ID)] && j.ID != "" {
				continue // the board changed between two pages, or knows no paging
			}
			seen[string(j.ID)] = true
			fresh++
			parts := []string{string(j.DescriptionPlain)}
			if parts[0] == "" {
				parts[0] = plain(string(j.Description))
			}
			for _, l := range j.Lists {
				parts = append(parts, line(string(l.Text)), plain(string(l.Content)))
			}
			parts = append(parts, string(j.AdditionalPlain))
			all = append(all, Listing{
				ID: string(j.ID), URL: link(p.url, string(j.HostedURL)), Title: line(string(j.Text)), Location: line(string(j.Categories.Location)),
				Description: paragraphs(parts...), PublishedAt: milliseconds(string(j.CreatedAt)),
			})
		}
		tell(n+1, 0)
		if len(*out) < page || fresh == 0 {
			return Answer{Listings: all}, nil
		}
	}
	return Answer{}, tooManyPages()
}

func tooManyPages() *Fault {
	return broken("The source has more than %d pages, which is more than is read.", maxPages)
}

// The Ashby job postings API: developers.ashbyhq.com/docs/public-job-posting-api.
// What isn't listed is for people who were given its address.
func (r *Reader) ashby(ctx context.Context, s Source) (Answer, error) {
	base, client := r.base(Ashby, "https://api.ashbyhq.com")
	out, p, err := ask[struct {
		Jobs *[]struct {
			ID               text  `json:"id"`
			Title            text  `json:"title"`
			IsListed         *bool `json:"isListed"`
			JobURL           text  `json:"jobUrl"`
			PublishedAt      text  `json:"publishedAt"`
			Location         place `json:"location"`
			DescriptionHTML  text  `json:"descriptionHtml"`
			DescriptionPlain text  `json:"descriptionPlain"`
			Compensation     *struct {
				Summary text `json:"compensationTierSummary"`
			} `json:"compensation"`
		} `json:"jobs"`
	}](ctx, r, client, base+"/posting-api/job-board/"+url.PathEscape(s.Board)+"?includeCompensation=true", &s)
	if err != nil || p.unchanged {
		return answer(p, nil), err
	}
	if out.Jobs == nil {
		return Answer{}, noList()
	}
	var all []Listing
	for _, j := range *out.Jobs {
		if j.IsListed != nil && !*j.IsListed {
			continue
		}
		l := Listing{
			ID: string(j.ID), URL: link(p.url, string(j.JobURL)), Title: line(string(j.Title)), Location: line(j.Location.name),
			Description: plain(string(j.DescriptionHTML)), PublishedAt: moment(string(j.PublishedAt)),
		}
		if l.Description == "" {
			l.Description = paragraphs(string(j.DescriptionPlain))
		}
		if j.Compensation != nil {
			l.Description = paragraphs(line(string(j.Compensation.Summary)), l.Description)
		}
		all = append(all, l)
	}
	return answer(p, all), nil
}

// The widget API of Workable: workable.readme.io, "Jobs widget".
func (r *Reader) workable(ctx context.Context, s Source) (Answer, error) {
	base, client := r.base(Workable, "https://apply.workable.com")
	out, p, err := ask[struct {
		Name text `json:"name"`
		Jobs *[]struct {
			Shortcode   text `json:"shortcode"`
			Title       text `json:"title"`
			URL         text `json:"url"`
			City        text `json:"city"`
			State       text `json:"state"`
			Country     text `json:"country"`
			PublishedOn text `json:"published_on"`
			CreatedAt   text `json:"created_at"`
			Description text `json:"description"`
		} `json:"jobs"`
	}](ctx, r, client, base+"/api/v1/widget/accounts/"+url.PathEscape(s.Board)+"?details=true", &s)
	if err != nil || p.unchanged {
		return answer(p, nil), err
	}
	if out.Jobs == nil {
		return Answer{}, noList()
	}
	var all []Listing
	for _, j := range *out.Jobs {
		all = append(all, Listing{
			ID: string(j.Shortcode), URL: link(p.url, string(j.URL)), Title: line(string(j.Title)), Company: line(string(out.Name)),
			Location: places(string(j.City), string(j.State), string(j.Country)), Description: plain(string(j.Description)),
			PublishedAt: moment(string(j.PublishedOn), string(j.CreatedAt)),
		})
	}
	return answer(p, all), nil
}

// The Posting API of SmartRecruiters: developers.smartrecruiters.com. A list has
// no descriptions. A company that doesn't exist looks like one without postings.
func (r *Reader) smartRecruiters(ctx context.Context, s Source, tell func(int, int)) (Answer, error) {
	const page = 100
	base, client := r.base(SmartRecruiters, "https://api.smartrecruiters.com")
	type posting struct {
		ID           text `json:"id"`
		Name         text `json:"name"`
		ReleasedDate text `json:"releasedDate"`
		Company      struct {
			Identifier text `json:"identifier"`
			Name       text `json:"name"`
		} `json:"company"`
		Location *struct {
			City    text `json:"city"`
			Region  text `json:"region"`
			Country text `json:"country"`
			Remote  bool `json:"remote"`
		} `json:"location"`
	}
	var all []Listing
	seen := map[string]bool{}
	for n := range maxPages {
		out, p, err := ask[struct {
			TotalFound *int      `json:"totalFound"`
			Content    []posting `json:"content"`
		}](ctx, r, client, base+"/v1/companies/"+url.PathEscape(s.Board)+"/postings?limit="+strconv.Itoa(page)+"&offset="+strconv.Itoa(n*page), nil)
		if err != nil {
			return Answer{}, err
		}
		if out.TotalFound == nil {
			return Answer{}, noList()
		}
		fresh := 0
		for _, j := range out.Content {
			if seen[string(j.ID)] {
				continue
			}
			seen[string(j.ID)] = true
			fresh++
			l := Listing{ID: string(j.ID), Title: line(string(j.Name)), Company: line(string(j.Company.Name)), PublishedAt: moment(string(j.ReleasedDate))}
			company := string(j.Company.Identifier)
			if company == "" {
				company = s.Board
			}
			l.URL = link(p.url, "https://jobs.smartrecruiters.com/"+url.PathEscape(company)+"/"+url.PathEscape(l.ID))
			if j.Location != nil {
				l.Location = places(string(j.Location.City), string(j.Location.Region), strings.ToUpper(string(j.Location.Country)))
				if j.Location.Remote {
					l.Location = places(l.Location, "Remote")
				}
			}
			all = append(all, l)
		}
		tell(n+1, (*out.TotalFound+page-1)/page)
		if len(all) >= *out.TotalFound {
			return Answer{Listings: all}, nil
		}
		if fresh == 0 {
			return Answer{}, &Fault{Reason: "The source ended its list before all of it was given.", Transient: true}
		}
	}
	return Answer{}, tooManyPages()
}

// The API of Remote OK: remoteok.com/api. Its first element says under which
// terms the rest may be used.
func (r *Reader) remoteOK(ctx context.Context, s Source) (Answer, error) {
	base, client := r.base(RemoteOK, "https://remoteok.com")
	out, p, err := ask[*[]struct {
		ID          text `json:"id"`
		URL         text `json:"url"`
		Position    text `json:"position"`
		Company     text `json:"company"`
		Location    text `json:"location"`
		Date        text `json:"date"`
		Description text `json:"description"`
	}](ctx, r, client, base+"/api", &s)
	if err != nil || p.unchanged {
		return answer(p, nil), err
	}
	if out == nil {
		return Answer{}, noList()
	}
	var all []Listing
	for _, j := range *out {
		if j.Position == "" && j.URL == "" {
			continue
		}
		all = append(all, Listing{
			ID: string(j.ID), URL: link(p.url, string(j.URL)), Title: line(string(j.Position)), Company: line(string(j.Company)), Location: line(string(j.Location)),
			Description: plain(string(j.Description)), PublishedAt: moment(string(j.Date)),
		})
	}
	return answer(p, all), nil
}

func milliseconds(s string) time.Time {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return sane(time.UnixMilli(n))
}

// moment is the first of the texts that is a time.
func moment(texts ...string) time.Time {
	for _, s := range texts {
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
			if t, err := time.Parse(layout, strings.TrimSpace(s)); err == nil {
				return sane(t)
			}
		}
	}
	return time.Time{}
}

// sane drops times that are nobody's: PostgreSQL and JSON can't hold some of them.
func sane(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1990 || t.Year() > 2200 {
		return time.Time{}
	}
	return t
}
